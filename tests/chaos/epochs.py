"""
Opens one transactional.id more often than an epoch, of 15 bits, can count: `python -m tests.chaos epochs`.

Most openings are bare InitProducerId requests, because librdkafka does not expose the producer id and epoch it gets.
One in twenty is a new librdkafka producer that commits a line. Near the last epochs, every other one is, and two in three
of these leave their transaction open for the next opening to abort.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from confluent_kafka import Producer, TopicPartition

from app.embedded.broker import Broker
from app.kafka import settings
from app.kafka.delivery import connect
from app.model import Partition, transactional_id
from tests.chaos.protocol import string
from tests.independent import read
from tests.support.ivy import kafka, resolved

CLIENT_EVERY = 20
EPOCHS = 1 << 15
LAST_EPOCHS = EPOCHS - 30
"""From this epoch on, every other opening is a librdkafka producer."""
CALL_SECONDS = 20.0
INIT_PRODUCER_ID, TXN_OFFSET_COMMIT = 22, 28
CONCURRENT_TRANSACTIONS = 51
TOPIC, GROUP = "epochs", "epochs"


class Identity(NamedTuple):
    """The producer id and epoch that a coordinator assigns."""

    producer: int
    epoch: int


@dataclass
class Tally:
    """What a run has seen; `identities` has the answers to the bare requests, in order."""

    identities: list[Identity] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list)
    left_open: int = 0
    """How many transactions the next opening had to abort."""
    read: list[bytes | None] = field(default_factory=list)

    @property
    def producers(self) -> list[int]:
        """The distinct producer ids, in the order in which they were assigned."""
        return list(dict.fromkeys(identity.producer for identity in self.identities))

    @property
    def near_the_end(self) -> bool:
        """Whether the producer id has few epochs left."""
        return bool(self.identities) and self.identities[-1].epoch >= LAST_EPOCHS


def run(times: int, version: str = "") -> Tally:
    """Open the transactional.id this many times, perhaps on another version of Kafka; raises what a producer raises."""
    name = transactional_id(GROUP, Partition(TOPIC, 0))
    tally = Tally()
    with (
        Broker(jars=resolved(kafka(version)) if version else None) as broker,
        Coordinator(broker.bootstrap) as coordinator,
    ):
        broker.create_topic(TOPIC)
        for number in range(times):
            if number % (2 if tally.near_the_end else CLIENT_EVERY):
                tally.identities.append(coordinator.open(name))
            elif tally.near_the_end and number % 6:
                _write(broker.bootstrap, number).flush(CALL_SECONDS)
                tally.left_open += 1
            else:
                _write(broker.bootstrap, number).commit_transaction(CALL_SECONDS)
                tally.written.append(b"%d" % number)
        tally.read = [record.value for record in read(broker.bootstrap, TOPIC)]
    return tally


def _write(bootstrap: str, number: int) -> Producer:
    """Open a producer as the service does, write a line, and return the producer with its open transaction."""
    configured = {"bootstrap.servers": bootstrap, "enable.idempotence": True, **settings.QUIET}
    fencing = settings.fencing(GROUP, 60, Partition(TOPIC, 0))
    producer = Producer(configured | fencing, logger=settings.SILENT)
    connect(producer, TOPIC)
    producer.init_transactions(CALL_SECONDS)
    producer.begin_transaction()
    producer.produce(TOPIC, b"%d" % number)
    return producer


class Coordinator:
    """A connection to the only broker, in Kafka's wire protocol."""

    def __init__(self, bootstrap: str) -> None:
        """Connect."""
        host, port = bootstrap.split(":")
        self._socket = socket.create_connection((host, int(port)), CALL_SECONDS)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect."""
        self._socket.close()

    def open(self, name: str) -> Identity:
        """Send InitProducerId, again while the previous transaction is being completed; return the answer."""
        while True:
            error, producer, epoch = self._init_producer_id(name)
            if error != CONCURRENT_TRANSACTIONS:
                break
            time.sleep(0.005)
        assert error == 0, f"the coordinator answers with error {error}"
        return Identity(producer, epoch)

    def commit_offset(self, name: str, group: str, identity: Identity, at: TopicPartition) -> int:
        """Send TxnOffsetCommit for one partition; return the error code."""
        begin = string(name) + string(group) + struct.pack(">qhi", identity.producer, identity.epoch, 1)
        one, no_epoch = 1, -1
        offset = string(at.topic) + struct.pack(">iiqi", one, at.partition, at.offset, no_epoch) + string("")
        (error,) = struct.unpack(">h", self._ask(TXN_OFFSET_COMMIT, 2, begin + offset)[-2:])
        return int(error)

    def _init_producer_id(self, name: str) -> tuple[int, int, int]:
        timeout_ms = struct.pack(">i", 60_000)
        error, producer, epoch = struct.unpack_from(">hqh", self._ask(INIT_PRODUCER_ID, 1, string(name) + timeout_ms))
        return error, producer, epoch

    def _ask(self, api: int, version: int, body: bytes) -> bytes:
        """Return what the answer says behind its correlation id and its throttle time."""
        correlation, no_client = 0, -1
        request = struct.pack(">hhih", api, version, correlation, no_client) + body
        self._socket.sendall(len(request).to_bytes(4) + request)
        return self._receive(int.from_bytes(self._receive(4)))[8:]

    def _receive(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            some = self._socket.recv(count - len(received))
            assert some, "the broker closed the connection"
            received += some
        return received
