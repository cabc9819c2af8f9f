"""The rights that the service needs with one cluster, as docs/security.md lists them."""

from __future__ import annotations

from shlex import quote

from app.config import Config
from app.cures import KafkaTools, own_ids
from app.driver.pause import GROUP


def commands(config: Config, tools: KafkaTools) -> list[str]:
    group = config.group_id
    return [
        tools.allow(["Read", "DescribeConfigs"], _named("topic", *config.source.topics)),
        tools.allow(
            ["Read", "Write", "DescribeConfigs"], _named("topic", config.sink.topic, config.dead_letters.topic)
        ),
        tools.allow(["Read"], _named("group", group, GROUP.format(group))),
        tools.allow(["Write"], own_ids(group)),
        tools.allow(["DescribeConfigs"], "--cluster"),
    ]


def _named(kind: str, *names: str) -> str:
    return " ".join(f"--{kind} {quote(name)}" for name in names)
