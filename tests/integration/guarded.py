"""A real broker with a listener that requires a password."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from app.embedded.broker import Broker, HeldPorts
from tests.conftest import QUICK_JAVA
from tests.integration.service import Event, settings

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
