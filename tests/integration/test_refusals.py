"""An error that needs an operator is reported within seconds, with cause and cure, and ends the service with 3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from app.config import load
from tests.conftest import STEADY, wait_for_coordinators
from tests.integration.checks import checked
from tests.integration.guarded import GuardedBroker, login
from tests.integration.secured import create
from tests.integration.service import Winnow, refusal


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedBroker]:
    """Return a broker with the topics of these tests."""
    with GuardedBroker(STEADY) as broker:
        wait_for_coordinators(broker)
        for role in ("raw", "clean", "dead"):
            broker.create_topic(role)
        yield broker


def test_a_wrong_password(guarded: GuardedBroker, tmp_path: Path) -> None:
    """With a wrong password the service retries for some seconds, says why it waits, and ends with the error."""
    with Winnow(login(guarded, "wrong"), tmp_path) as service:
        began = service.wait_for("kafka_unavailable")
        code = service.code()

    said = service.said()
    assert 3 == code
    assert said.startswith("winnow: Kafka denied access while ")
    assert "Authentication failed" in said
    assert said.endswith("kafka.sasl.username and sasl.password (or sasl.password.file)")
    assert "Kafka denied access" in began["reason"]
    assert "wrong" not in said


def test_check_tells_a_wrong_password(guarded: GuardedBroker) -> None:
    """`winnow check --connect` reports at once the error that `run` would wait for."""
    kafka = [f"kafka.{key}={value}" for key, value in login(guarded, "wrong")["kafka"].items()]
    names = ["group.id=g", "source.topics=raw", "sink.topic=clean", "dead.letters.topic=dead"]

    code, said = checked(load(None, [*names, *kafka], {}))

    ((_, refusal),) = said
    assert 3 == code
    assert "Authentication failed" in refusal


def test_transactions_that_the_broker_does_not_allow(guarded: GuardedBroker, tmp_path: Path) -> None:
    """If the broker forbids the transaction timeout, `run` and `check --connect` name both values and the cure."""
    config = login(guarded, "right", transaction_timeout="60s")
    names = ["group.id=g", "source.topics=raw", "sink.topic=clean", "dead.letters.topic=dead"]

    said = refusal(config, tmp_path)
    code, findings = checked(load(None, [*names, f"kafka.bootstrap.servers={guarded.bootstrap}"], {}))

    assert 3 == code
    assert said == (
        "winnow: transaction.timeout is 60000 ms, but the brokers' transaction.max.timeout.ms is 30000 ms: "
        "set transaction.timeout to 30s or less, or the brokers' transaction.max.timeout.ms to at least 60000"
    )
    assert ("refuses", said.removeprefix("winnow: ")) in findings


def test_a_transactional_id_that_is_not_allowed(guarded: GuardedBroker, tmp_path: Path) -> None:
    """The preflight reports a forbidden transactional id before a task tries to open it."""
    deny = AclBinding(
        ResourceType.TRANSACTIONAL_ID,
        "winnow/denied/",
        ResourcePatternType.PREFIXED,
        "User:winnow",
        "*",
        AclOperation.ALL,
        AclPermissionType.DENY,
    )
    create(guarded, [deny])

    said = refusal(login(guarded, "right", "denied", transaction_timeout="20s"), tmp_path)

    assert said.startswith("winnow: Kafka denied access while opening a transactional producer of group 'denied': ")
    assert said.endswith("--transactional-id winnow/denied/ --resource-pattern-type prefixed")
