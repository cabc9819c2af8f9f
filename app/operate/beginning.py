"""From a sample of lines to a configuration, and to the topics and rights that it lacks: what `winnow init` does."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from shlex import quote
from typing import IO, Any

from app.config import Config, commented
from app.cures import KafkaTools, own_ids
from app.driver.pause import GROUP
from app.driver.preflight import PARTITIONS
from app.facts import TopicFacts
from parsers import registry
from parsers.contract import Reject
from parsers.proposals import MOST_LINES, Proposal

ENOUGH = 0.5
"""The share of the lines that a parser must take to be written down."""
MOST_REPLICAS = 3
LONGEST_LINE = 1 << 20
"""As long as a record may be by the brokers' default."""


def lines_of(sample: IO[bytes]) -> list[bytes]:
    read = iter(partial(sample.readline, LONGEST_LINE), b"")
    return [line.removesuffix(b"\n").removesuffix(b"\r") for line in islice(read, MOST_LINES)]


def configuration(found: Proposal, lines: Sequence[bytes], topic: str, bootstrap: str) -> dict[str, Any]:
    return {
        "group.id": f"{topic}-cleansing",
        "source": {"topics": [topic]},
        "sink": {"topic": f"{topic}.clean"},
        "dead.letters": {"topic": f"{topic}.dlq"},
        "kafka": {"bootstrap.servers": bootstrap},
        "parser": {"name": found.parser, **found.options, "samples": list(_samples(found, lines))},
    }


def written(values: Mapping[str, Any]) -> str:
    """Return a configuration as the text of its file."""
    parser = registry.describe(values["parser"]["name"])
    return commented(values, {option.name: option.meaning for option in parser.options})


def _samples(found: Proposal, lines: Sequence[bytes]) -> Iterator[dict[str, str]]:
    """Yield three lines from all over the sample with their outputs, and a rejected one with its reason."""
    rows = list({lines[row]: row for row in found.outputs if _is_text(lines[row])}.values())
    for row in dict.fromkeys(rows[place] for place in (0, len(rows) // 2, -1) if rows):
        yield {"line": lines[row].decode(), "output": found.outputs[row].decode()}
    for reject in islice((each for each in found.rejects if _is_text(lines[each.row])), 1):
        yield {"line": lines[reject.row].decode(), "reason": reject.reason}


def _is_text(line: bytes) -> bool:
    try:
        return bool(line.decode())
    except UnicodeDecodeError:
        return False


def example(found: Proposal, lines: Sequence[bytes]) -> Reject | None:
    """Return a rejected line: one that holds something, if there is one."""
    return next((each for each in found.rejects if lines[each.row].strip()), next(iter(found.rejects), None))


def topics_of(config: Config) -> Collection[str]:
    return (*config.source.topics, config.sink.topic, config.dead_letters.topic)


def creations(config: Config, brokers: int, topics: Mapping[str, TopicFacts], tools: KafkaTools) -> list[str]:
    """Return the commands that create the missing topics: with as many partitions as the source has."""
    (source,) = config.source.topics
    partitions = (topics[source].partitions if source in topics else 0) or PARTITIONS
    missing = [each for each in topics_of(config) if each not in topics]
    return [tools.create_topic(name, partitions, {}, min(brokers, MOST_REPLICAS)) for name in missing]


def grants(config: Config, tools: KafkaTools) -> list[str]:
    """Return the commands that grant the rights which the service needs, as docs/security.md lists them."""
    group, outputs = config.group_id, (config.sink.topic, config.dead_letters.topic)
    return [
        tools.allow(["Read", "DescribeConfigs"], _named("topic", *config.source.topics)),
        tools.allow(["Read", "Write", "DescribeConfigs"], _named("topic", *outputs)),
        tools.allow(["Read"], _named("group", group, GROUP.format(group))),
        tools.allow(["Write"], own_ids(group)),
        tools.allow(["DescribeConfigs"], "--cluster"),
    ]


def _named(kind: str, *names: str) -> str:
    return " ".join(f"--{kind} {quote(name)}" for name in names)
