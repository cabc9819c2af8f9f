"""Brokers behind proxies, and the password that they ask for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    PartitionMetadata,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from app.embedded.broker import Broker, Cluster, HeldPorts
from tests.chaos.proxy import BROKERS, CONTROLLERS, SERVICE, Route
from tests.independent import client
from tests.support.ivy import kafka, resolved
from tests.support.waiting import PATIENCE

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
COORDINATORS = 5
"""Partitions of each of Kafka's internal topics; `app.embedded.broker` sets them."""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)
"""Brokers that are killed again and again must not spend the processors on optimising compilation."""

SPACE = "200m"
"""Of a small disk: a multiple of what a short run writes."""

USER, MECHANISM = "winnow", "SCRAM-SHA-256"
ITERATIONS = 4096
"""The fewest that Kafka allows; every connection pays for them."""


class ProxiedBroker(Broker):
    """
    Brokers with further listeners, which advertise the ports of a proxy: for the service, and for each other.

    They need a proxy with their `routes`. The harness has a listener of its own.
    """

    def __init__(self, nodes: int, version: str = "") -> None:
        """Choose the ports; a version is that of another Kafka."""
        super().__init__(nodes, java=SHORT_LIVED, jars=resolved(kafka(version)) if version else None)
        self._outside = ports = HeldPorts(5 * nodes)
        self._inner, self.outer, self._between, self._outer_between, self._outer_controllers = (
            ports[at : at + nodes] for at in range(0, 5 * nodes, nodes)
        )
        ways = (
            (SERVICE, self.outer, self._inner),
            (BROKERS, self._outer_between, self._between),
            (CONTROLLERS, self._outer_controllers, self._controllers),
        )
        self.routes = {
            outer: Route(inner, node, listener)
            for listener, outers, inners in ways
            for node, outer, inner in zip(self.nodes, outers, inners, strict=True)
        }

    def _server_properties(self, node: int) -> dict[str, str]:
        usual = super()._server_properties(node)
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT,BETWEEN:PLAINTEXT"
        controllers = [
            self._controllers[each - 1] if each == node else self._outer_controllers[each - 1] for each in self.nodes
        ]
        at = "127.0.0.1"
        return usual | {
            "listeners": f"{usual['listeners']},PROXIED://{at}:{self._inner[node - 1]},BETWEEN://{at}:{self._between[node - 1]}",
            "advertised.listeners": f"{usual['advertised.listeners']},PROXIED://{at}:{self.outer[node - 1]}"
            f",BETWEEN://{at}:{self._outer_between[node - 1]},CONTROLLER://{at}:{self._outer_controllers[node - 1]}",
            "controller.quorum.voters": ",".join(f"{each}@{at}:{port}" for each, port in enumerate(controllers, 1)),
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "BETWEEN",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "replica.lag.time.max.ms": "10000",
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

    def coordinates(self, topic: str, name: str) -> PartitionMetadata:
        """Return the partition of an internal topic that a transactional id or a group belongs to."""
        partition = (_java_hash(name) & 0x7FFFFFFF) % COORDINATORS
        return client(self.bootstrap).list_topics(topic, timeout=30).topics[topic].partitions[partition]

    def coordinator(self, topic: str, name: str) -> int:
        """Return the coordinator of a transactional id or a group: the leader of its partition."""
        return self.coordinates(topic, name).leader


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
    """
    Brokers whose proxied listener asks for a password, and which create topics by themselves, as by default.

    Args:
        nodes: how many there are.
        version: the version of Kafka; by default the product's own.
        short_of_space: the node that has a small disk of its own.
    """

    def __init__(self, nodes: int, version: str = "", *, short_of_space: int | None = None) -> None:
        """Choose the ports."""
        super().__init__(nodes, version)
        self._small = short_of_space

    def _prepare(self, node: int, java: str, jars: Path) -> None:
        folder = self.folder / f"node-{node}"
        if node == self._small and not folder.is_mount():
            folder.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SPACE}", "winnow", folder], check=True)
        super()._prepare(node, java, jars)

    def close(self) -> None:
        """End the servers, and unmount the small disk."""
        super().close()
        if self._small is not None:
            subprocess.run(["umount", "-l", self.folder / f"node-{self._small}"], check=False)
            shutil.rmtree(self.folder, ignore_errors=True)

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
            future.result(PATIENCE)

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
