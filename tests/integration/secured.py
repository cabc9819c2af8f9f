"""A real broker with one listener for each login method. It allows only what an ACL allows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Self

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509

from app.embedded.broker import Broker, HeldPorts
from tests.conftest import QUICK_JAVA, wait_for_coordinators
from tests.independent import Written, amiss, committed, line, produce, read, values
from tests.integration.certificates import Authority
from tests.integration.service import Event, settings
from tests.integration.tokens import AUDIENCE, CLIENT, ISSUER, SECRET, TokenServer
from tests.support.waiting import PATIENCE, until

USER, PASSWORD = "winnow", "r1ght-4f2c81"
ITERATIONS = 4096
"""Kafka's minimum."""
MODULE = "org.apache.kafka.common.security"
OAUTH = f'{MODULE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
JAAS = {
    ("plain", "plain"): f'{MODULE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    ("scram", "scram-sha-256"): f"{MODULE}.scram.ScramLoginModule required;",
    ("scram", "scram-sha-512"): f"{MODULE}.scram.ScramLoginModule required;",
    ("jwt", "oauthbearer"): OAUTH,
    ("oidc", "oauthbearer"): OAUTH,
}
PROTOCOLS = {
    "tls": "SSL",
    "mtls": "SSL",
    "expired": "SSL",
    "elsewhere": "SSL",
    "plain": "SASL_SSL",
    "scram": "SASL_SSL",
    "jwt": "SASL_SSL",
    "oidc": "SASL_SSL",
}
"""The listeners and their protocols. Two of them present an untrustworthy certificate."""


class SecuredBroker(Broker):
    """
    The broker. `logins` has the client settings of each login method.

    Args:
        files: the folder for certificates and keys.
        properties: server properties that override the defaults.
    """

    def __init__(self, files: Path, properties: Mapping[str, str] = MappingProxyType({})) -> None:
        """Make the certificates and choose the ports, without starting."""
        self.files = files
        self.authority, self.stranger = Authority(files, "authority"), Authority(files, "stranger")
        self.tokens = TokenServer(files / "keys.json")
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._keys_url}"
        super().__init__(properties=properties, java=(*QUICK_JAVA, allowed))
        self._secured_ports = HeldPorts(len(PROTOCOLS))
        self.at = {name: f"127.0.0.1:{port}" for name, port in zip(PROTOCOLS, self._secured_ports, strict=True)}
        self.sign_certificates()

    def sign_certificates(self) -> None:
        """Write the certificates of the listeners and of the user, replacing existing ones."""
        self.client_certificate = self.authority.sign(USER)
        self._shown = {
            **dict.fromkeys(PROTOCOLS, self.authority.sign("broker")),
            "expired": self.authority.sign("expired", lives=timedelta(hours=-1)),
            "elsewhere": self.authority.sign("elsewhere", host=x509.DNSName("kafka.example.org")),
        }

    @property
    def _keys_url(self) -> str:
        return (self.files / "keys.json").as_uri()

    def __enter__(self) -> Self:
        """Start, and give the user a password."""
        super().__enter__()
        self.set_password(PASSWORD)
        wait_for_coordinators(self)
        return self

    def _server_properties(self, node: int) -> dict[str, str]:
        own = super()._server_properties(node)
        outside = [f"{name.upper()}://{address}" for name, address in self.at.items()]
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT"}
        protocols |= {name.upper(): protocol for name, protocol in PROTOCOLS.items()}
        return (
            own
            | {key: ",".join([own[key], *outside]) for key in ("listeners", "advertised.listeners")}
            | {
                "listener.security.protocol.map": ",".join(f"{name}:{value}" for name, value in protocols.items()),
                "inter.broker.listener.name": "PLAINTEXT",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "allow.everyone.if.no.acl.found": "false",
                "super.users": "User:ANONYMOUS",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.certificate),
                "listener.name.mtls.ssl.client.auth": "required",
                "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
                "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
                "listener.name.jwt.sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.oidc.sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.oidc.oauthbearer.sasl.server.callback.handler.class": (
                    f"{MODULE}.oauthbearer.OAuthBearerValidatorCallbackHandler"
                ),
                "listener.name.oidc.sasl.oauthbearer.jwks.endpoint.url": self._keys_url,
                "listener.name.oidc.sasl.oauthbearer.expected.audience": AUDIENCE,
                "listener.name.oidc.sasl.oauthbearer.expected.issuer": ISSUER,
                # Clients must log in again: with a token when it expires, with SCRAM every few seconds.
                "connections.max.reauth.ms": "3600000",
                "listener.name.scram.connections.max.reauth.ms": "5000",
            }
            | {f"listener.name.{name}.{key}.sasl.jaas.config": module for (name, key), module in JAAS.items()}
            | {f"listener.name.{name}.ssl.keystore.type": "PEM" for name in PROTOCOLS}
            | {f"listener.name.{name}.ssl.keystore.location": str(file) for name, file in self._shown.items()}
        )

    def set_password(self, password: str) -> None:
        """Change the user's password for SCRAM. Open connections stay open."""
        admin = self.admin()  # responses arrive only while it lives
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, ITERATIONS), password.encode())
            for future in admin.alter_user_scram_credentials([wanted]).values():
                future.result(PATIENCE)

    def login(self, way: str) -> dict[str, str]:
        """Return the client settings of one login method: a listener, or a SCRAM mechanism."""
        listener = "scram" if way.startswith("SCRAM") else way
        known = {
            "bootstrap.servers": self.at[listener],
            "security.protocol": PROTOCOLS[listener].lower(),
            "ssl.ca.location": str(self.authority.certificate),
        }
        password = {"sasl.username": USER, "sasl.password": PASSWORD}
        certificate = str(self.client_certificate)
        return known | {
            "mtls": {"ssl.certificate.location": certificate, "ssl.key.location": certificate},
            "plain": {"sasl.mechanisms": "PLAIN", **password},
            "scram": {"sasl.mechanisms": way, **password},
            "jwt": {
                "sasl.mechanisms": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principal={USER}",
            },
            "oidc": {
                "sasl.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": CLIENT,
                "sasl.oauthbearer.client.secret": SECRET,
                "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
            },
        }.get(listener, {})


Right = tuple[ResourceType, str, AclOperation]
"""An operation on a resource: its kind, its name and the operation."""


def needed(group: str, source: str, sink: str, dead: str) -> list[Right]:
    """Return the rights without which the service refuses to run, as listed in docs/security.md."""
    return [
        (ResourceType.TOPIC, source, AclOperation.READ),
        (ResourceType.TOPIC, sink, AclOperation.WRITE),
        (ResourceType.TOPIC, sink, AclOperation.READ),
        (ResourceType.TOPIC, dead, AclOperation.WRITE),
        (ResourceType.TOPIC, dead, AclOperation.READ),
        (ResourceType.GROUP, group, AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, f"winnow/{group}/", AclOperation.WRITE),
    ]


def useful(group: str, source: str, sink: str, dead: str) -> list[Right]:
    """Return the rights whose absence is only a warning."""
    return [
        (ResourceType.TOPIC, source, AclOperation.DESCRIBE_CONFIGS),
        (ResourceType.TOPIC, sink, AclOperation.DESCRIBE_CONFIGS),
        (ResourceType.TOPIC, dead, AclOperation.DESCRIBE_CONFIGS),
        (ResourceType.GROUP, f"{group}.pause", AclOperation.READ),
        (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS),
    ]


def rule(right: Right, user: str = USER) -> AclBinding:
    """Return the ACL that grants the user a right. Transactional ids are matched by prefix."""
    kind, name, operation = right
    prefixed = kind is ResourceType.TRANSACTIONAL_ID
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def allow(broker: Broker, rights: Iterable[Right]) -> None:
    """Grant the user these rights."""
    create(broker, [rule(each) for each in rights])


def create(broker: Broker, rules: Iterable[AclBinding]) -> None:
    """Create ACLs, and wait until the broker obeys them: the response comes from the controller."""
    rules, admin = list(rules), broker.admin()  # responses arrive only while it lives
    for future in admin.create_acls(rules).values():
        future.result(PATIENCE)
    until(lambda: all(obeyed(broker, each) for each in rules), "the ACLs")


def obeyed(broker: Broker, like: AclBinding) -> Sequence[AclBinding]:
    """Return the ACLs with the same fields that the broker knows."""
    fields = (like.restype, like.name, like.resource_pattern_type, like.principal, like.host, like.operation)
    found: Sequence[AclBinding] = (
        broker.admin().describe_acls(AclBindingFilter(*fields, like.permission_type)).result(PATIENCE)
    )
    return found


def forbid(broker: Broker, right: Right) -> None:
    """Revoke a right."""
    kind, name, operation = right
    pattern = rule(right).resource_pattern_type
    found = AclBindingFilter(kind, name, pattern, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
    admin = broker.admin()
    (taken,) = admin.delete_acls([found])[found].result(PATIENCE)
    assert right == (taken.restype, taken.name, taken.operation)
    until(lambda: not obeyed(broker, taken), "the end of the ACL")


def stage(broker: SecuredBroker, way: str, name: str) -> Event:
    """Create topics and grant the required rights. Return the configuration of a service with this login method."""
    group = f"{name}-{time.monotonic_ns()}"
    roles = {role: broker.create_topic(f"{group}.{role}", 2) for role in ("raw", "clean", "dead")}
    allow(broker, needed(group, *roles.values()))
    config = settings("", group=group, sources=[roles["raw"]], sink=roles["clean"], dead=roles["dead"])
    return config | {"kafka": broker.login(way), "http": {"enabled": False}}


def write(broker: SecuredBroker, source: str, first: int, last: int) -> None:
    """Write numbered lines to each of two partitions, followed by invalid ones."""
    for partition in range(2):
        lines = [Written(line(n, partition), None, partition) for n in range(first, last)]
        produce(broker.bootstrap, source, [*lines, Written(b"rubbish", None, partition)])


def assert_exactly_once(broker: SecuredBroker, config: Event, lines: int, rubbish: int) -> None:
    """Require that an independent reader finds each line once and in order, all dead letters, and the final offset."""
    (source,), group = config["source"]["topics"], config["group.id"]
    assert {} == amiss({0: lines, 1: lines}, read(broker.bootstrap, config["sink"]["topic"]))
    assert rubbish * [b"rubbish"] == values(read(broker.bootstrap, config["dead.letters"]["topic"]))
    everything = lines + rubbish // 2
    assert {(source, 0): everything, (source, 1): everything} == committed(broker.bootstrap, group, source)
