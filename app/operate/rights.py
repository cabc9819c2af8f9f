"""The rights that the service needs with one cluster, as docs/security.md lists them."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import NamedTuple

from app.config import Config
from app.cures import KafkaTools, own_ids
from app.driver.pause import GROUP


class Right(NamedTuple):
    """Operations, and the options of `kafka-acls` that name what they are allowed on."""

    operations: tuple[str, ...]
    resource: str


def needed(config: Config) -> Iterator[Right]:
    """Yield what `kafka-acls` must allow."""
    group, written = config.group_id, (config.sink.topic, config.dead_letters.topic)
    yield Right(("Read", "DescribeConfigs"), _named("topic", *config.source.topics))
    yield Right(("Read", "Write", "DescribeConfigs"), _named("topic", *written))
    yield Right(("Read",), _named("group", group, GROUP.format(group)))
    yield Right(("Write",), own_ids(group))
    yield Right(("DescribeConfigs",), "--cluster")


def commands(config: Config, tools: KafkaTools) -> list[str]:
    """Return the commands that grant the rights."""
    return [tools.allow(list(right.operations), right.resource) for right in needed(config)]


def _named(kind: str, *names: str) -> str:
    return " ".join(f"--{kind} {quote(name)}" for name in names)
