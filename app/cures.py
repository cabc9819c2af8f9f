"""
The commands that errors, findings and the log suggest to an operator.

To set an offset they name Winnow's own command, which knows the configured store and cluster; kafka-consumer-groups
knows only a group on one cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import NamedTuple, Self

from app.model import Partition, transactional_ids

FILE = "winnow.yaml"
"""Placeholder for the service's configuration file."""
BROKERS = "BROKERS"
"""Placeholder for bootstrap servers, where the message says which cluster is meant."""
CHECK = f"winnow check -c {FILE} --connect"
RESUME = f"winnow resume -c {FILE}"
RUN = f"winnow run -c {FILE}"
START = f"start the service: {RUN}"
LOOK_AGAIN = f"look again: winnow lag -c {FILE} --watch"
ADD_CAPACITY = f"add executors or partitions; the rates are in winnow top -c {FILE}"
SHOW_SAMPLES = f"see winnow check -c {FILE}"
TRANSACTIONS = f"winnow transactions ls -c {FILE}"
SHOW_OFFSETS = f"winnow offsets show -c {FILE}"
SHOW_HISTORY = f"winnow offsets history -c {FILE}"
RESET_TO_CURRENT = f"winnow offsets reset -c {FILE} --to-current"
"""Commits the group's offsets again without the run of the service that committed them."""
FILTERS = f"winnow filters -c {FILE}"
ABORT_TRANSACTIONS = f"stop Winnow, then winnow transactions abort -c {FILE}"
RESTART = "restart Winnow: its offset store keeps nothing, so it begins at starting.offsets"

COMMAND = re.compile(r"((?:winnow|kafka-[a-z-]+) [a-z-][^;]*? -.*?(?=$| lists what|; | \(or |, ))")
"""A command with its options in a cure, up to the words that go on with the sentence."""


class CommandLine(NamedTuple):
    """
    What the commands for one service have instead of the placeholders.

    Args:
        options: name its configuration.
        cluster: names its brokers; the placeholder if it uses two clusters.
    """

    options: str = f"-c {FILE}"
    cluster: str = f"--bootstrap-server {BROKERS}"

    def exact(self, text: str) -> str:
        return text.replace(f"-c {FILE}", self.options).replace(f"--bootstrap-server {BROKERS}", self.cluster)


PLACEHOLDERS = CommandLine()


class CurePart(NamedTuple):
    """A part of a cure: words, or a command to copy."""

    text: str
    command: bool


def parts(cure: str, line: CommandLine) -> Iterator[CurePart]:
    """Split a cure into its words and its commands, which have the options of the service."""
    for index, text in enumerate(COMMAND.split(cure)):  # every second one is a command
        if index % 2:
            yield CurePart(line.exact(text), command=True)
        elif text:
            yield CurePart(text, command=False)


def reset(partition: Partition, goal: str) -> str:
    """Return how to set a partition's offset; `goal` is an option of the command, such as `--to-latest`."""
    command = f"winnow offsets reset -c {FILE} --topic {partition.topic}:{partition.number} {goal}"
    return f"stop Winnow, then {command}"


def choose_offset(partition: Partition) -> str:
    """Return how to set a partition's offset when only an operator can tell where to."""
    return f"{reset(partition, '--to-earliest')} (or --to-latest, or --to-offset OFFSET)"


def unblock(partition: Partition) -> str:
    return f"set out.of.range to nearest, earliest or latest; or {choose_offset(partition)}"


def migrate_offsets(origin: str, store: str) -> str:
    return f"winnow offsets migrate -c {FILE} --from {origin} --to {store}"


def audit(since: str) -> str:
    return f"winnow audit -c {FILE} --from {since}"


def own_ids(group: str) -> str:
    """Return the options of `kafka-acls` that name the transactional ids of a group."""
    return f"--transactional-id {quote(transactional_ids(group))} --resource-pattern-type prefixed"


@dataclass(frozen=True, slots=True)
class KafkaTools:
    """Commands of Kafka's own tools for one cluster; `secured` adds the properties file that TLS or a login needs."""

    bootstrap: str = BROKERS
    secured: bool = False

    @classmethod
    def of(cls, kafka: Mapping[str, str]) -> Self:
        protocol = kafka.get("security.protocol", "plaintext")
        return cls(kafka.get("bootstrap.servers", BROKERS), protocol.lower() != "plaintext")

    @property
    def cluster(self) -> str:
        """The options that name the cluster."""
        login = " --command-config client.properties" if self.secured else ""
        return f"--bootstrap-server {self.bootstrap}{login}"

    def _command(self, tool: str, arguments: str) -> str:
        return f"{tool} {self.cluster} {arguments}"

    def allow(self, operations: list[str], what: str) -> str:
        """Return how to grant rights; `what` is an option that names the resource."""
        rights = " ".join(f"--operation {each}" for each in operations)
        return self._command("kafka-acls", f"--add --allow-principal User:NAME {rights} {what}")

    def configure(self, topic: str, setting: str) -> str:
        return self._command("kafka-configs", f"--alter --topic {topic} --add-config {setting}")

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str], replicas: int = 0) -> str:
        """Return how to create a topic; without a number of `replicas`, the brokers' default applies."""
        copies = f" --replication-factor {replicas}" if replicas else ""
        options = "".join(f" --config {key}={value}" for key, value in settings.items())
        return self._command("kafka-topics", f"--create --topic {name} --partitions {partitions}{copies}{options}")

    def grow_topic(self, name: str, partitions: int) -> str:
        return self._command("kafka-topics", f"--alter --topic {name} --partitions {partitions}")

    def delete_group(self, group: str) -> str:
        return self._command("kafka-consumer-groups", f"--delete --group {quote(group)}")

    def list_transactions(self) -> str:
        return self._command("kafka-transactions", "list")

    def find_hanging(self, where: str) -> str:
        """
        Return how to find transactions that have been hanging for a minute; without a number the tool looks for 15.

        `where` holds the options that name topic and partition.
        """
        return self._command("kafka-transactions", f"find-hanging {where} --max-transaction-timeout 1")

    def abort(self, where: str, offset: int) -> str:
        return self._command("kafka-transactions", f"abort {where} --start-offset {offset}")


ANY = KafkaTools()
