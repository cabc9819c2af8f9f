"""Which of its client's errors the driver's admin connection remembers."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from shutil import copyfile

import pytest
from confluent_kafka import KafkaError, KafkaException

from app.errors import NotAllowed, Unreachable
from app.kafka import admin
from app.kafka.admin import AdminConnection
from tests.integration.certificates import Authority

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


def test_a_key_that_does_not_match_yet_is_tried_again(tmp_path: Path) -> None:
    """A certificate and its key are two files, and one of them is replaced first; the old client may still work."""
    authority, key = Authority(tmp_path, "ca"), tmp_path / "key.pem"
    certificate = authority.sign("winnow")
    copyfile(certificate, key)
    files = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    connection = AdminConnection(NOBODY | {"security.protocol": "ssl"} | files)
    client = connection.client

    authority.sign("winnow")
    with pytest.raises(Unreachable, match="key values mismatch"):
        connection.failure(TIMED_OUT, "testing")
    assert client is connection.client

    copyfile(certificate, key)
    connection.failure(TIMED_OUT, "testing")
    assert client is not connection.client
