"""Which of its client's errors the driver's admin connection remembers."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from app.errors import NotAllowed, Unreachable
from app.kafka import admin
from app.kafka.admin import AdminConnection

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)
WRONG_PASSWORD = KafkaError(KafkaError._AUTHENTICATION, "wrong password")


def test_a_refusal_is_remembered_over_a_broker_that_is_down() -> None:
    """One of three brokers may be down while the others refuse: the operator must see the refusal."""
    connection = AdminConnection(NOBODY)
    for error in (WRONG_PASSWORD, KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError._ALL_BROKERS_DOWN)):
        connection._remember_error(error)

    failure = connection.failure(TIMED_OUT, "testing")

    assert isinstance(failure, NotAllowed)
    assert "wrong password" in failure.cause


def test_a_new_connection_has_forgotten_the_refusal() -> None:
    """A temporary refusal does not explain the next outage."""
    connection = AdminConnection(NOBODY)
    connection._remember_error(WRONG_PASSWORD)
    connection.failure(TIMED_OUT, "testing")

    assert isinstance(connection.failure(TIMED_OUT, "testing"), Unreachable)


def test_a_refused_client_does_not_wait_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other brokers get a moment to answer; then the refusal is the answer."""
    monkeypatch.setattr(admin, "REFUSED_SECONDS", 0.01)
    connection = AdminConnection(NOBODY)
    connection._remember_error(WRONG_PASSWORD)

    with pytest.raises(KafkaException, match="wrong password"):
        connection.wait(Future())
