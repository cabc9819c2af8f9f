"""Brokers behind proxies, and the password that they ask for."""

from __future__ import annotations

from typing import Any

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from app.embedded.broker import Broker, Cluster, HeldPorts
from tests.independent import client

COORDINATORS = 5
"""Partitions of each of Kafka's internal topics; `app.embedded.broker` sets them."""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)
"""Brokers that are killed again and again must not spend the processors on optimising compilation."""

USER, MECHANISM = "winnow", "SCRAM-SHA-256"
ITERATIONS = 4096
"""The fewest that Kafka allows; every connection pays for them."""


class ProxiedBroker(Broker):
    """Brokers with a second listener, which advertises the ports of the proxy."""

    def __init__(self, nodes: int) -> None:
        """Choose the ports."""
        super().__init__(nodes, java=SHORT_LIVED)
        self._outside = ports = HeldPorts(2 * nodes)
        self._inner, self.outer = ports[:nodes], ports[nodes:]
        self.routes = dict(zip(self.outer, self._inner, strict=True))

    def _server_properties(self, node: int) -> dict[str, str]:
        usual = super()._server_properties(node)
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT"
        return usual | {
            "listeners": f"{usual['listeners']},PROXIED://127.0.0.1:{self._inner[node - 1]}",
            "advertised.listeners": f"{usual['advertised.listeners']},PROXIED://127.0.0.1:{self.outer[node - 1]}",
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "PLAINTEXT",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        }

    @property
    def nodes(self) -> list[int]:
        """The ids of all nodes."""
        return self._nodes(None)

    @property
    def running(self) -> list[int]:
        """The ids of the running nodes."""
        return sorted(node for node, process in self._processes.items() if process.poll() is None)

    def process(self, node: int) -> psutil.Process:
        """Return the JVM of a node."""
        (server,) = psutil.Process(self._processes[node].pid).children()
        return server

    @property
    def in_sync(self) -> bool:
        """
        Whether each node answers and reports every replica of every partition in sync: then the next fault may follow.

        Each node is asked separately, because for some seconds the others do not notice that one is down.
        """
        return all(map(_sees_all_in_sync, self.bootstrap.split(",")))

    def coordinator(self, topic: str, name: str) -> int:
        """Return the coordinator of a transactional id or a group, from the leader of its partition of an internal topic."""
        partition = (_java_hash(name) & 0x7FFFFFFF) % COORDINATORS
        known = client(self.bootstrap).list_topics(topic, timeout=30).topics[topic].partitions
        return known[partition].leader


def _sees_all_in_sync(server: str) -> bool:
    try:
        topics = Cluster(server).admin().list_topics(timeout=2).topics.values()
    except KafkaException:
        return False
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    return all(len(partition.isrs) == len(partition.replicas) for partition in partitions)


def _java_hash(text: str) -> int:
    """Return Java's String.hashCode."""
    total = 0
    for character in text:
        total = (31 * total + ord(character)) & 0xFFFFFFFF
    return total


class ScramBroker(ProxiedBroker):
    """Brokers whose proxied listener asks for a password, and which create topics by themselves, as by default."""

    def _server_properties(self, node: int) -> dict[str, str]:
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        usual = super()._server_properties(node)
        protocols = usual["listener.security.protocol.map"].replace("PROXIED:PLAINTEXT", "PROXIED:SASL_PLAINTEXT")
        return usual | {
            "listener.security.protocol.map": protocols,
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.proxied.{MECHANISM.lower()}.sasl.jaas.config": login,
            "auto.create.topics.enable": "true",
        }

    @staticmethod
    def login(password: dict[str, str]) -> dict[str, str]:
        """Return the settings of a client that knows the password, given as `sasl.password` or `sasl.password.file`."""
        return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": MECHANISM, "sasl.username": USER, **password}

    def set_password(self, password: str) -> None:
        """Change the user's password; connections that are open stay open."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
        wanted = UserScramCredentialUpsertion(USER, info, password.encode())
        admin = self.admin()  # answers arrive only while it lives
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(30)

    def accepts(self, password: str) -> bool:
        """Return whether each running node lets the user in with this password."""
        return all(self._lets_in(node, password) for node in self.running)

    def _lets_in(self, node: int, password: str) -> bool:
        where: dict[str, Any] = {"bootstrap.servers": f"127.0.0.1:{self._inner[node - 1]}", "log_level": "0"}
        try:
            AdminClient(where | self.login({"sasl.password": password})).list_topics(timeout=2)
        except KafkaException:
            return False
        return True
