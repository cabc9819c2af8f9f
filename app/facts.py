"""What a preflight asks of a Kafka cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class TopicFacts(NamedTuple):
    """
    What a preflight asks about a topic.

    Args:
        rights: what we may do with it, such as `Read`; None where the broker does not tell.
        replicas: how many its partitions have, at least.
        settings: its configuration; None where we may not read it.
        partitions: how many it has; 0 where that is not known.
    """

    rights: frozenset[str] | None
    replicas: int = 1
    settings: Mapping[str, str] | None = None
    partitions: int = 0

    def setting(self, name: str) -> str:
        """Return a setting; empty where it is not known."""
        return (self.settings or {}).get(name, "")


class BrokerFacts(NamedTuple):
    """
    What a preflight asks about the brokers of a cluster.

    Args:
        versions: the newest version of each request that all of them know; empty where that is not known.
        settings: the configuration of one of them; None where we may not read it.
    """

    versions: Mapping[str, int] = {}
    settings: Mapping[str, str] | None = None
