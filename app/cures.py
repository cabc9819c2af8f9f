"""
What a person types to go on: every command that an error, a finding or the log names.

An offset is set by Winnow's own command, which knows the store and the cluster of the configuration at hand; Kafka's
tool knows only the group of one cluster. Where Kafka's tools are needed, they are given the cluster that is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from app.model import Partition

FILE = "winnow.yaml"
"""Stands for the configuration that the service runs with."""
BROKERS = "BROKERS"
"""Stands for the bootstrap servers of a cluster that is plain from the sentence."""
CHECK = f"winnow check -c {FILE} --connect"
RESUME = f"winnow resume -c {FILE}"
RESTART = "restart Winnow: its offset store keeps nothing, so it begins at starting.offsets"


def reset(partition: Partition, goal: str) -> str:
    """Return how the offset of a partition is set; `goal` is an option of the command, such as `--to-latest`."""
    command = f"winnow offsets reset -c {FILE} --topic {partition.topic}:{partition.number} {goal}"
    return f"stop Winnow, then {command}"


def choose_offset(partition: Partition) -> str:
    """Return how the offset of a partition is set where only a person can know to what."""
    return f"{reset(partition, '--to-earliest')} (or --to-latest, or --to-offset OFFSET)"


def go_on(partition: Partition) -> str:
    """Return what lets a partition go on whose offset it does not hold any more."""
    return f"set out.of.range to nearest, earliest or latest; or {choose_offset(partition)}"


def reset_group() -> str:
    """Return how the offsets of the group are set to themselves, so that they name no run of the service."""
    return f"winnow offsets reset -c {FILE} --to-current"


def take_along(store: str) -> str:
    """Return how the offsets on the source's cluster are moved to a store of the configuration, by its name."""
    return f"winnow offsets migrate -c {FILE} --from source --to {store}"


def history() -> str:
    """Return what lists the earlier offsets of the group."""
    return f"winnow offsets history -c {FILE}"


@dataclass(frozen=True, slots=True)
class KafkaTools:
    """
    The commands of Kafka's own tools for one cluster.

    Args:
        bootstrap: its bootstrap servers.
        secured: whether they ask for more than a plain connection: then the tools need a file with their properties.
    """

    bootstrap: str = BROKERS
    secured: bool = False

    @classmethod
    def of(cls, kafka: Mapping[str, str]) -> Self:
        """Return the tools for the cluster with these properties of librdkafka."""
        protocol = kafka.get("security.protocol", "plaintext")
        return cls(kafka.get("bootstrap.servers", BROKERS), protocol.lower() != "plaintext")

    def _command(self, tool: str, arguments: str) -> str:
        login = " --command-config client.properties" if self.secured else ""
        return f"{tool} --bootstrap-server {self.bootstrap}{login} {arguments}"

    def allow(self, operations: list[str], what: str) -> str:
        """Return how a user gets rights; `what` is an option that names a resource."""
        rights = " ".join(f"--operation {each}" for each in operations)
        return self._command("kafka-acls", f"--add --allow-principal User:NAME {rights} {what}")

    def configure(self, topic: str, setting: str) -> str:
        """Return how a setting of a topic is changed."""
        return self._command("kafka-configs", f"--alter --topic {topic} --add-config {setting}")

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> str:
        """Return how a topic is created."""
        options = "".join(f" --config {key}={value}" for key, value in settings.items())
        return self._command("kafka-topics", f"--create --topic {name} --partitions {partitions}{options}")

    def grow_topic(self, name: str, partitions: int) -> str:
        """Return how a topic gets more partitions."""
        return self._command("kafka-topics", f"--alter --topic {name} --partitions {partitions}")

    def delete_group(self, group: str) -> str:
        """Return how the offsets of a group are deleted."""
        return self._command("kafka-consumer-groups", f"--delete --group {group}")

    def list_transactions(self) -> str:
        """Return what lists the transactions of a cluster."""
        return self._command("kafka-transactions", "list")

    def find_hanging(self, where: str) -> str:
        """Return what finds transactions without an end; `where` are the options that name topic and partition."""
        return self._command("kafka-transactions", f"find-hanging {where}")

    def abort(self, where: str, offset: int) -> str:
        """Return how a transaction that begins at an offset is ended."""
        return self._command("kafka-transactions", f"abort {where} --start-offset {offset}")


ANY = KafkaTools()
