"""The fence raises what needs an operator, and tolerates an outage."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from app.errors import NotAllowed, NotUsable
from app.kafka import fence
from app.kafka.fence import FENCES_AT_ONCE, KafkaFence
from app.model import Partition, SinkKafka

P = Partition("raw", 3)


def fence_that_meets(code: int, monkeypatch: pytest.MonkeyPatch, **own: str) -> KafkaFence:
    """Return a fence whose producers get this error; `own` are more properties of the cluster, with _ for a dot."""

    def connect(*_: object) -> None:
        raise KafkaException(KafkaError(code))

    monkeypatch.setattr(fence, "connect", connect)
    more = {name.replace("_", "."): value for name, value in own.items()}
    return KafkaFence({"bootstrap.servers": "127.0.0.1:1"} | more, "g", 60, "dead")


@pytest.mark.parametrize("timeout", ["delivery_timeout_ms", "message_timeout_ms", "socket_timeout_ms"])
def test_a_timeout_longer_than_its_transaction_does_not_stop_it(timeout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least once, users may set it, and a fence that librdkafka refuses to make looks like an outage for ever."""
    with pytest.raises(NotAllowed):
        fence_that_meets(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, monkeypatch, **{timeout: "120000"}).fence(
            [P]
        )


@pytest.mark.parametrize(
    ("code", "kind", "cure"),
    [
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NotAllowed, "grant the right that winnow check"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, NotUsable, "lower transaction.timeout"),
    ],
)
def test_what_a_person_must_act_on_is_raised(
    code: int, kind: type[NotUsable], cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No task could open the partition either."""
    with pytest.raises(kind, match=cure) as raised:
        fence_that_meets(code, monkeypatch).fence([P])

    assert "raw-3" in raised.value.cause


def test_the_missing_right_is_that_to_the_groups_own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right to all ids would let it fence the services of other groups."""
    forbidden = fence_that_meets(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, monkeypatch)

    with pytest.raises(NotAllowed) as raised:
        forbidden.refuse_forbidden_ids()

    assert raised.value.cure == (
        "kafka-acls --bootstrap-server 127.0.0.1:1 --add --allow-principal User:NAME --operation Write "
        "--transactional-id winnow/g/ --resource-pattern-type prefixed"
    )


def test_the_cluster_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With sink.kafka, an operator must know which brokers, and which section."""
    fence_that_meets(KafkaError.UNSUPPORTED_VERSION, monkeypatch)
    there = KafkaFence(SinkKafka({"bootstrap.servers": "127.0.0.1:1"}), "g", 60, "dead")

    with pytest.raises(NotUsable, match=r"^the sink's Kafka .*: check the settings under `sink\.kafka`"):
        there.fence([P])


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._FENCED])
def test_an_outage_only_reaches_nobody(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition's next owner fences the last one."""
    assert not fence_that_meets(code, monkeypatch).fence([P])


@pytest.mark.parametrize("partitions", [FENCES_AT_ONCE, 1_000])
def test_an_outage_costs_a_few_fences_however_many_partitions_there_are(
    partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fence waits some seconds, and a stop has ten in all."""
    tried: list[object] = []

    def connect(*_: object) -> None:
        tried.append(None)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(fence, "connect", connect)

    assert not KafkaFence({"bootstrap.servers": "127.0.0.1:1"}, "g", 60, "dead").fence([P] * partitions)
    assert FENCES_AT_ONCE <= len(tried) < 2 * FENCES_AT_ONCE


def test_those_behind_a_few_that_are_not_reached_are_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One unavailable coordinator is not an outage."""
    tried, reached = count(), list[object]()

    def connect(*_: object) -> None:
        if next(tried) < FENCES_AT_ONCE - 1:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        reached.append(None)

    monkeypatch.setattr(fence, "connect", connect)
    monkeypatch.setattr(fence, "Producer", Mock())
    partitions = [Partition("raw", number) for number in range(100)]

    fenced = KafkaFence({"bootstrap.servers": "127.0.0.1:1"}, "g", 60, "dead").fence(partitions)

    assert 100 - (FENCES_AT_ONCE - 1) == len(reached) == len(fenced)


def test_a_secret_that_is_being_replaced_is_an_outage(tmp_path: Path) -> None:
    """The partition's next owner fences instead; the service goes on."""
    kafka = {"bootstrap.servers": "nowhere:9092", "sasl.password.file": str(tmp_path / "none")}

    assert set() == KafkaFence(kafka, "group", 60.0, "clean").fence([Partition("raw", 0)])
