"""An error that needs an operator is reported within seconds, with cause and cure, and ends the service with 3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from app.config import load
from app.driver.check import connected
from app.embedded.broker import Broker, HeldPorts
from app.start import clients
from tests.conftest import QUICK_JAVA
from tests.integration.service import Event, Winnow, settings

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{LOGIN} required user_winnow="right";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "transaction.max.timeout.ms": "30000",
}


class GuardedBroker(Broker):
    """
    A broker with a second listener that requires a password.

    Args:
        properties: server properties that override the defaults.
    """

    def __init__(self, properties: Mapping[str, str] = MappingProxyType({})) -> None:
        """Choose the port without starting."""
        super().__init__(properties={**PROPERTIES, **properties}, java=QUICK_JAVA)
        self._guarded_ports = HeldPorts(1)
        self.guarded = f"127.0.0.1:{self._guarded_ports[0]}"

    def _server_properties(self, node: int) -> dict[str, str]:
        own = super()._server_properties(node)
        return own | {
            key: f"{own[key]},SASL_PLAINTEXT://{self.guarded}" for key in ("listeners", "advertised.listeners")
        }


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedBroker]:
    """Return a broker with the topics of these tests."""
    with GuardedBroker() as broker:
        for role in ("raw", "clean", "dead"):
            broker.create_topic(role)
        yield broker


def login(broker: GuardedBroker, password: str, group: str = "g", **more: object) -> Event:
    """Return the configuration of a client with a password."""
    config = settings(broker.guarded, group=group, sources=["raw"], sink="clean", dead="dead", **more)
    config["kafka"] |= {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "winnow",
        "sasl.password": password,
    }
    return config


def ends_with(config: Event, folder: Path) -> str:
    """Run the service until it exits with 3, and return the one line that it prints."""
    with Winnow(config, folder) as service:
        assert 3 == service.code()
    (said,) = [line for line in service.noise if line.startswith("winnow: ")]
    return said


def test_a_wrong_password(guarded: GuardedBroker, tmp_path: Path) -> None:
    """With a wrong password the service retries for some seconds, says why it waits, and ends with the error."""
    with Winnow(login(guarded, "wrong"), tmp_path) as service:
        began = service.wait_for("kafka_unavailable")
        code = service.code()

    (said,) = [line for line in service.noise if line.startswith("winnow: ")]
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
    config, said = load(None, [*names, *kafka], {}), list[str]()

    assert 3 == connected(config, clients(config), lambda _, what: said.append(what))
    (refusal,) = said
    assert "Authentication failed" in refusal


def test_transactions_that_the_broker_does_not_allow(guarded: GuardedBroker, tmp_path: Path) -> None:
    """If the broker forbids the transaction timeout, `run` and `check --connect` name both values and the cure."""
    config = login(guarded, "right", transaction_timeout="60s")
    names = ["group.id=g", "source.topics=raw", "sink.topic=clean", "dead.letters.topic=dead"]
    checked = load(None, [*names, f"kafka.bootstrap.servers={guarded.bootstrap}"], {})

    findings: list[tuple[str, str]] = []

    said = ends_with(config, tmp_path)
    assert 3 == connected(checked, clients(checked), lambda *finding: findings.append(finding))

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
    admin = guarded.admin()
    admin.create_acls([deny])[deny].result(60)

    said = ends_with(login(guarded, "right", "denied", transaction_timeout="20s"), tmp_path)

    assert said.startswith("winnow: Kafka denied access while opening a transactional producer of group 'denied': ")
    assert said.endswith("--transactional-id winnow/ --resource-pattern-type prefixed")
