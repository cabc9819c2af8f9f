"""What a preflight asks of a Kafka cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class TopicFacts(NamedTuple):
    """
    What a preflight asks about a topic.

    Args:
        rights: what we may do with it, such as `Read`; None if the broker does not say.
        replicas: the smallest replica count of its partitions.
        settings: its configuration; None if we may not read it.
        partitions: 0 if unknown.
    """

    rights: frozenset[str] | None
    replicas: int = 1
    settings: Mapping[str, str] | None = None
    partitions: int = 0

    def setting(self, name: str) -> str:
        """Return a setting; empty if it is unknown."""
        return (self.settings or {}).get(name, "")


class BrokerFacts(NamedTuple):
    """
    What a preflight asks about the brokers of a cluster.

    Args:
        versions: the newest version of each request that all of them support; empty if unknown.
        settings: the configuration of one of them; None if we may not read it.
    """

    versions: Mapping[str, int] = {}
    settings: Mapping[str, str] | None = None
