"""Errors cross processes, and tell an operator the cause, the place and the cure."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from app import errors, model
from app.errors import (
    ConfigError,
    Fenced,
    Leaderless,
    NotAllowed,
    NotUsable,
    OffsetMoved,
    OffsetPending,
    PartitionError,
    TooManyDeadLetters,
    Transient,
    Truncated,
    Unreachable,
    WinnowError,
)
from app.kafka import failures
from app.model import Assignment, CommittedOffset, OffsetRange, Partition, Receipt, SinkKafka
from tests.fakes import make_task_config

P = Partition("raw", 3)


def family(kind: type[WinnowError]) -> Iterator[type[WinnowError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from family(child)


def an(kind: type[WinnowError]) -> WinnowError:
    with_arguments_of_their_own = (
        ConfigError(("a", "b")),
        Truncated(P, 42, 40),
        TooManyDeadLetters(P, "what happened"),
        OffsetPending(P, 42),
        Leaderless(P),
    )
    if known := [each for each in with_arguments_of_their_own if type(each) is kind]:
        return known[0]
    return kind(P, "what happened", 42) if issubclass(kind, PartitionError) else kind("what happened")


@pytest.mark.parametrize("kind", list(family(WinnowError)))
def test_every_error_survives_the_trip_from_an_executor(kind: type[WinnowError]) -> None:
    """An error equals the one that the executor raised, after pickling."""
    error = an(kind)

    copy = pickle.loads(pickle.dumps(error))

    assert (kind, str(error), vars(error)) == (type(copy), str(copy), vars(copy))


@pytest.mark.parametrize("kind", [kind for kind in family(WinnowError) if kind.__module__ == "app.errors"])
def test_every_error_is_in_the_runbook(kind: type[WinnowError]) -> None:
    """The tree in the docstring of app.errors names every error."""
    assert re.search(rf"\b{kind.__name__}\b", errors.__doc__ or "")


def test_a_partitions_error_names_its_place() -> None:
    """The text begins with topic-partition@offset."""
    assert "raw-3@42: what happened" == str(Transient(P, "what happened", 42))
    assert "raw-3: what happened" == str(Fenced(P, "what happened"))


@pytest.mark.parametrize(
    "value",
    [
        P,
        OffsetRange(P, 1, 2, 3, "metadata"),
        CommittedOffset(5, "metadata"),
        Receipt(P, 1, 2, 1, 0, {"empty": 1}),
        Assignment(make_task_config(), (OffsetRange(P, None, 0),), 30.0, 1e9),
        *model.Guarantee,
        *model.Outcome,
    ],
)
def test_the_model_survives_pickle(value: object) -> None:
    """Every type of app.model is equal after pickling."""
    assert value == pickle.loads(pickle.dumps(value))


def codes() -> list[int]:
    return sorted(
        code for name, code in vars(KafkaError).items() if isinstance(code, int) and not name.startswith("__")
    )


@pytest.mark.parametrize("code", codes())
def test_every_kafka_error_has_a_meaning(code: int) -> None:
    """Every librdkafka error of a partition means fenced, moved, or open it again."""
    error = failures.of_partition(KafkaException(KafkaError(code)), P, "testing")

    assert type(error) in (Fenced, OffsetMoved, Transient)
    assert P == error.partition


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._FENCED, Fenced),
        (KafkaError.INVALID_PRODUCER_EPOCH, Fenced),
        (KafkaError._AUTO_OFFSET_RESET, OffsetMoved),
        (KafkaError._TIMED_OUT, Transient),
        (KafkaError._MSG_TIMED_OUT, Transient),
        (KafkaError.INVALID_PRODUCER_ID_MAPPING, Transient),
        (KafkaError.INVALID_TXN_STATE, Transient),  # fatal for this producer only
    ],
)
def test_fenced_is_not_failed(code: int, kind: type[PartitionError]) -> None:
    """A fence, a failure and a lost offset are three different errors."""
    assert kind is type(failures.of_partition(KafkaError(code), P, "testing"))


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        (
            (
                "Partition log truncation detected at offset 100 (leader epoch 0): broker end offset is 90 (offset"
                " leader epoch 0). Reset to INVALID.: Local: Partition log truncation detected (broker 1)"
            ),
            90,
        ),
        (
            (
                "No epoch found less or equal to offset 100 (leader epoch 12): broker end offset is -1 (offset leader"
                " epoch 12). Reset using configured policy.: Local: Partition log truncation detected (broker 1)"
            ),
            0,
        ),
    ],
    ids=["the log was cut", "it has no such leader epoch: before 2.8, that of a topic created again begins at 0"],
)
def test_a_truncation_is_known_by_its_words(text: str, cut: int) -> None:
    """For every position out of range, librdkafka 2.16 has one code; only the text reveals a truncation."""
    error = failures.of_partition(KafkaError(KafkaError._AUTO_OFFSET_RESET, text), P, "reading")

    assert isinstance(error, Truncated)
    assert (100, cut) == (error.offset, error.cut)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TRANSPORT, Unreachable),
        (KafkaError._TIMED_OUT, Unreachable),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, Unreachable),
        (KafkaError.SASL_AUTHENTICATION_FAILED, NotAllowed),
        (KafkaError._SSL, NotAllowed),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAllowed),
        (KafkaError.UNSUPPORTED_VERSION, NotUsable),
        (KafkaError.TOPIC_EXCEPTION, NotUsable),
    ],
)
def test_the_service_waits_for_an_outage_but_not_for_a_refusal(code: int, kind: type[WinnowError]) -> None:
    """The service waits for a broker, but reports an error that waiting cannot cure at once."""
    error = failures.of_cluster(KafkaError(code), "testing", {})

    assert kind is type(error)
    assert 3 == error.exit_code


def test_the_service_waits_for_files_of_its_clients() -> None:
    """A certificate and its key are replaced one after the other, and for a moment they do not match."""
    said = "ssl.key.location failed: error:05800074:x509 certificate routines::key values mismatch"
    refused = KafkaError(KafkaError._INVALID_ARG, f"Failed to create admin client: {said}")

    error = failures.of_cluster(refused, "making a client", SinkKafka())

    assert Unreachable is type(error)
    assert said in error.cause
    assert "the files that `sink.kafka` names" in error.cure
    refused = KafkaError(KafkaError._INVALID_ARG, "Failed to create consumer: `a` must be >= `b` + 512")
    assert "what `kafka` sets" in str(failures.of_cluster(refused, "making a client", {}).cure)
    other = failures.of_cluster(KafkaError(KafkaError._INVALID_ARG, "no such topic"), "testing", {})
    assert NotUsable is type(other)


@pytest.mark.parametrize(
    ("error", "connection", "kind"),
    [
        (KafkaError._TIMED_OUT, KafkaError._AUTHENTICATION, NotAllowed),
        (KafkaError._TIMED_OUT, KafkaError._SSL, NotAllowed),
        (KafkaError._TRANSPORT, KafkaError.SASL_AUTHENTICATION_FAILED, NotAllowed),
        (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, Unreachable),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._AUTHENTICATION, Unreachable),  # a broker has answered
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._TRANSPORT, NotAllowed),
    ],
)
def test_a_timeout_means_what_the_connection_says(error: int, connection: int, kind: type[WinnowError]) -> None:
    """A request without a broker only times out; the connections show a wrong password or certificate."""
    failure = failures.of_cluster(failures.decisive(KafkaError(error), KafkaError(connection)), "testing", {})

    assert kind is type(failure)


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "transaction.max.timeout.ms"),
        (KafkaError.TOPIC_EXCEPTION, "correct the topic's name"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "grant the right that winnow check"),
        (KafkaError._AUTHENTICATION, "check the credentials"),
    ],
)
def test_a_refusal_names_its_cure(code: int, cure: str) -> None:
    """The error says what to change."""
    assert cure in failures.of_cluster(KafkaError(code), "testing", {}).cure


def test_transactional_ids_cannot_collide() -> None:
    """Group `a` reading `b-c` and group `a-b` reading `c` must not fence each other."""
    assert model.transactional_id("a", Partition("b-c", 1)) != model.transactional_id("a-b", Partition("c", 1))
    assert "winnow/g/raw/3" == model.transactional_id("g", P)
