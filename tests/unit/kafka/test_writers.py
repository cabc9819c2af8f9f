"""What writers say of a producer that has failed for good, and what they end again. Without a broker."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, cimpl
from structlog.testing import capture_logs

from app.errors import Fenced, OffsetPending, PartitionError, Transient, Undelivered
from app.kafka import writers
from app.kafka.acknowledged import AcknowledgedWriter
from app.kafka.backend import PLAIN, Backend, best_backend
from app.kafka.bulk import native
from app.kafka.clients import TaskClients
from app.kafka.delivery import Delivery
from app.kafka.hanging import Ends, HangingTransactions, mark
from app.kafka.offsets import KafkaGroupOffsets
from app.kafka.plain.sender import PlainSender
from app.kafka.sender import Targets
from app.kafka.writers import TransactionalWriter
from app.model import CommittedOffset, Guarantee, Partition, Partitioner
from app.offsets.contract import StoreContext
from app.records import Lines
from tests.fakes import FakeKafka, FakeOffsets, make_task_config

RAW = Partition("raw", 0)
LINES = Lines(
    pa.array([b"x"], pa.binary()), np.zeros(1, np.int32), pa.array([b"k"], pa.binary()), np.zeros(1, np.int64)
)
NOWHERE = {"bootstrap.servers": "localhost:9"}
KAFKA = {Guarantee.AT_LEAST_ONCE: NOWHERE, Guarantee.EXACTLY_ONCE: NOWHERE | {"test.mock.num.brokers": "1"}}


def send(writer: TransactionalWriter | AcknowledgedWriter) -> None:
    writer.send(LINES)


def commit(writer: TransactionalWriter | AcknowledgedWriter) -> None:
    writer.commit(1, "")


@pytest.mark.parametrize("call", [send, commit])
@pytest.mark.parametrize("backend", [PLAIN, best_backend({})], ids=["plain", "bulk"])
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_fatal_error_is_named(
    guarantee: Guarantee, backend: Backend, call: Callable[[TransactionalWriter | AcknowledgedWriter], None]
) -> None:
    """Not the purge of the records that wait, nor the answer to a question about a transaction that there is not."""
    made: list[confluent_kafka.Producer] = []

    def making(*settings: Any, **more: Any) -> confluent_kafka.Producer:
        made.append(confluent_kafka.Producer(*settings, **more))
        return made[-1]

    clients = TaskClients(make_task_config(guarantee, kafka=KAFKA[guarantee]), backend, making)
    writer = clients.writer(RAW, clients.offsets())
    writer.open()
    writer.send(LINES)
    fatal = ctypes.CDLL(cimpl.__file__).rd_kafka_test_fatal_error
    fatal.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    fatal(native.handle(made[-1]), KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"planted")

    with pytest.raises(Transient, match=r"planted \(OUT_OF_ORDER_SEQUENCE_NUMBER\)"):
        call(writer)

    writer.discard()


ADD_PARTITIONS, END = 24, 26
"""The keys of AddPartitionsToTxn and EndTxn."""


@pytest.mark.parametrize(
    ("answers", "raised"),
    [
        ({END: [KafkaError.UNKNOWN, KafkaError.PRODUCER_FENCED]}, Fenced),
        ({ADD_PARTITIONS: [KafkaError.UNKNOWN], END: [KafkaError.INVALID_PRODUCER_EPOCH]}, Fenced),
        ({END: [KafkaError.UNKNOWN]}, Undelivered),
        ({END: [KafkaError.UNKNOWN, KafkaError.UNKNOWN]}, Undelivered),
    ],
    ids=["the commit", "the first record", "not fenced", "still unknown"],
)
def test_an_unknown_error_may_be_a_fence(answers: Mapping[int, Sequence[int]], raised: type[PartitionError]) -> None:
    """A broker answers UNKNOWN while it fences. A lane that opened again would fence its successor."""
    made: list[confluent_kafka.Producer] = []

    def making(settings: dict[str, Any], **more: Any) -> confluent_kafka.Producer:
        made.append(confluent_kafka.Producer(settings | {"allow.auto.create.topics": True}, **more))
        return made[-1]

    clients = TaskClients(make_task_config(kafka=KAFKA[Guarantee.EXACTLY_ONCE]), PLAIN, making)
    writer = clients.writer(RAW, clients.offsets())
    writer.open()
    made[-1].list_topics(RAW.topic)  # creates it, so that its offset can be committed
    librdkafka = ctypes.CDLL(cimpl.__file__)
    librdkafka.rd_kafka_handle_mock_cluster.argtypes = [ctypes.c_void_p]
    librdkafka.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
    push = librdkafka.rd_kafka_mock_push_request_errors_array
    push.argtypes = [ctypes.c_void_p, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int)]
    brokers = librdkafka.rd_kafka_handle_mock_cluster(native.handle(made[-1]))
    for api, errors in answers.items():
        push(brokers, api, len(errors), (ctypes.c_int * len(errors))(*errors))

    with pytest.raises(raised):  # noqa: PT012  # the first record may be refused at once or later
        writer.send(LINES)
        writer.commit(1, "")

    writer.discard()


@pytest.mark.parametrize("linger", ["linger.ms", "queue.buffering.max.ms"])
@pytest.mark.parametrize("backend", [PLAIN, best_backend({})], ids=["plain", "bulk"])
def test_a_commit_does_not_wait_for_records_that_linger(backend: Backend, linger: str) -> None:
    """A batch that never fills would be given up before it is sent, again and again."""
    kafka = NOWHERE | {"test.mock.num.brokers": "1", linger: "12000"}

    def making(settings: dict[str, Any], **more: Any) -> confluent_kafka.Producer:
        return confluent_kafka.Producer(settings | {"allow.auto.create.topics": True}, **more)

    clients = TaskClients(make_task_config(Guarantee.AT_LEAST_ONCE, kafka=kafka), backend, making)
    offsets = FakeKafka({RAW: []})
    writer = clients.writer(RAW, FakeOffsets(offsets))
    writer.settle(None)

    writer.send(LINES)
    commit(writer)

    assert CommittedOffset(1, "") == offsets.committed[RAW]
    writer.discard()


@pytest.mark.parametrize("backend", [PLAIN, best_backend({})], ids=["plain", "bulk"])
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_what_no_broker_takes_is_undelivered(
    guarantee: Guarantee, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the lane separates it from what can be delivered, which would come again at each retry."""
    clients = TaskClients(make_task_config(guarantee, kafka=KAFKA[guarantee]), backend)
    writer = clients.writer(RAW, clients.offsets())
    writer.open()
    for name in ("CONTROL_SECONDS", "LOOK_SECONDS"):
        monkeypatch.setattr(writers, name, 0.1)

    writer.send(LINES)
    with pytest.raises(Undelivered, match="1 records were not acknowledged by clean-0 or dead-0"):
        commit(writer)

    writer.discard()


def test_without_transactions_it_begins_only_where_the_offset_can_be_saved() -> None:
    """Otherwise the lines that it writes would come again at each retry."""
    kafka = FakeKafka({RAW: []})
    clients = TaskClients(make_task_config(Guarantee.AT_LEAST_ONCE, kafka=NOWHERE), PLAIN)
    writer = clients.writer(RAW, FakeOffsets(kafka))

    writer.settle(CommittedOffset(1, "kept"))
    assert CommittedOffset(1, "kept") == kafka.committed[RAW]

    kafka.saves_left = 0
    with pytest.raises(Transient, match="may not have been stored"):
        writer.settle(CommittedOffset(1, "kept"))

    writer.discard()


class Client:
    """A producer that notes what it is asked to do: the partition and the headers of a record, or a word."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def begin_transaction(self) -> None:
        self.asked.append("begin")

    def produce(self, topic: str, _value: bytes, _key: bytes, number: int, *, headers: object, **_: object) -> None:
        self.asked.append((Partition(topic, number), headers))

    def flush(self, _seconds: float) -> int:
        self.asked.append("flush")
        return 0

    def abort_transaction(self, _seconds: float) -> None:
        self.asked.append("abort")


class Hanging(HangingTransactions):
    """Finds what a test says is open, by partition: the source offset that its last record of ours names, if any."""

    def __init__(self, left_open: Mapping[Partition, int | None]) -> None:
        super().__init__({}, "g")
        self.left_open = left_open

    def ends(self, partitions: Collection[Partition]) -> dict[Partition, Ends]:
        return {each: Ends(7, 8 if each in self.left_open else 7) for each in partitions}

    def last_offsets(self, source: Partition, targets: Mapping[Partition, Ends]) -> dict[Partition, int]:
        assert (RAW, self.left_open.keys()) == (source, targets.keys())
        return {each: offset for each, offset in self.left_open.items() if offset is not None}


FIRST, SECOND, DEAD = Partition("clean", 0), Partition("clean", 1), Partition("dead", 0)
COMMITTED = 5


@pytest.mark.parametrize(
    ("partitioner", "left_open", "ended"),
    [
        (Partitioner.SOURCE, {FIRST: COMMITTED, DEAD: None}, [FIRST]),
        (Partitioner.SOURCE, {FIRST: None, DEAD: COMMITTED + 2}, [DEAD]),
        (Partitioner.SOURCE, {FIRST: COMMITTED - 1}, []),
        (Partitioner.SOURCE, {}, []),
        (Partitioner.KEY, {FIRST: COMMITTED, SECOND: None}, [FIRST, SECOND]),
    ],
    ids=["lines", "dead letters", "committed", "nothing", "by key"],
)
def test_what_was_left_open_is_aborted_again(
    partitioner: Partitioner, left_open: Mapping[Partition, int | None], ended: Sequence[Partition]
) -> None:
    """Unless it was committed. By key, a line without a mark may be in any partition where something is open."""
    client, targets = Client(), Targets.of(make_task_config(sink_partitioner=partitioner), RAW)
    sender, delivery = PlainSender(client, targets), Delivery(lambda _: client)  # type: ignore[arg-type, return-value]  # all that they use
    writer = TransactionalWriter(RAW, sender, delivery, KafkaGroupOffsets(StoreContext("g", {})), Hanging(left_open))

    writer.settle(CommittedOffset(COMMITTED))

    written = [(each, [mark(RAW, "g", COMMITTED)]) for each in ended]
    assert (["begin", *written, "flush", "abort"] if ended else []) == client.asked


def test_that_a_transaction_may_be_open_is_no_warning() -> None:
    """In a take-over, another source partition's open transaction hides its end where they share one of the sink."""
    client, targets = Client(), Targets.of(make_task_config(), RAW)
    sender, delivery = PlainSender(client, targets), Delivery(lambda _: client)  # type: ignore[arg-type, return-value]  # all that they use
    hanging = Hanging({FIRST: COMMITTED})
    writer = TransactionalWriter(RAW, sender, delivery, KafkaGroupOffsets(StoreContext("g", {})), hanging)

    with capture_logs() as logs:
        writer.settle(CommittedOffset(COMMITTED))

    assert [("transaction_aborted_again", "info")] == [(each["event"], each["log_level"]) for each in logs]


EIGHTH = Partition("raw", 8)
FIRST_EIGHT = " ".join(f"clean-{number}" for number in range(8))


@pytest.mark.parametrize(
    ("source", "partitioner", "partitions", "searched"),
    [
        (RAW, Partitioner.SOURCE, (3, 2), "/ clean-1 clean-2"),
        (EIGHTH, Partitioner.SOURCE, (9, 3), f"clean-0 clean-1 clean-2 clean-3 dead-0 / {FIRST_EIGHT}"),
        (EIGHTH, Partitioner.KEY, (9, 3), "dead-0 /"),
        (EIGHTH, Partitioner.SOURCE, (1, 1), "/"),
    ],
)
def test_the_records_of_a_pending_offset_are_looked_for_wherever_it_wrote(
    source: Partition, partitioner: Partitioner, partitions: tuple[int, int], searched: str
) -> None:
    """The topics may have had fewer partitions, or keys chose those of its lines."""
    config = make_task_config(sink_partitioner=partitioner)
    sink, dead = (
        replace(each, partitions=count)
        for each, count in zip((config.sink, config.dead_letters), partitions, strict=True)
    )
    asked: list[str] = []

    class Unknown(Hanging):
        def was_committed(
            self,
            source: Partition,
            ends: Mapping[Partition, Ends],
            began_at: int,
            before: Collection[Partition] = (),
            rest: Collection[Partition] = (),
        ) -> None:
            asked.extend((*map(str, before), "/", *map(str, rest)))

    client, targets = Client(), Targets.of(replace(config, sink=sink, dead_letters=dead), source)
    sender, delivery = PlainSender(client, targets), Delivery(lambda _: client)  # type: ignore[arg-type, return-value]  # all that they use
    writer = TransactionalWriter(source, sender, delivery, KafkaGroupOffsets(StoreContext("g", {})), Unknown({}))

    with pytest.raises(OffsetPending):
        writer.end_pending(COMMITTED)

    assert (searched, []) == (" ".join(asked), client.asked)
