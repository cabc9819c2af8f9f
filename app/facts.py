"""What Kafka clusters answer to a preflight and to commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from app.model import Partition


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


class OpenTransaction(NamedTuple):
    """
    An open transaction.

    Args:
        source: the source partition of its transactional id.
        state: `ongoing`; or `committing`, `aborting` or `fencing` while its coordinator ends it.
        began: when it began, in milliseconds since 1970.
        producer: the id of its producer.
    """

    source: Partition
    state: str
    began: int
    producer: int
    epoch: int
