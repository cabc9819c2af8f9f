"""The rights that the service needs are those of the page."""

from __future__ import annotations

import shlex
from itertools import pairwise

from app.config import load
from app.cures import KafkaTools
from app.operate.beginning import grants
from tests.support.docs import ROOT, fenced

PAGE = (ROOT / "docs/security.md").read_text()


def granted(words: list[str]) -> list[tuple[str, str]]:
    """Return the options of a command that say what is allowed, on what."""
    return [
        (option, value)
        for option, value in pairwise([*words, ""])
        if option.startswith("--") and option not in ("--bootstrap-server", "--add", "--allow-principal")
    ]


def test_they_are_those_of_the_page() -> None:
    """In its order, for its configuration: the commands that an administrator copies."""
    (block,) = (each for each in fenced(PAGE, "sh") if each.startswith("allow() "))
    page = [granted(shlex.split(each)) for each in block.splitlines() if each.startswith("allow --")]
    group, sink = "group.id=idc-cleansing", "sink.topic=clean-logs"
    config = load(
        None,
        [group, "source.topics=raw-logs", sink, "dead.letters.topic=raw-logs.dlq", "kafka.bootstrap.servers=a:1"],
        {},
    )

    assert page == [granted(shlex.split(each)) for each in grants(config, KafkaTools("a:1"))]


def test_a_group_of_any_name_is_one_word() -> None:
    """Kafka takes any name; a shell does not."""
    named = ["group.id=it's $(a) team", "source.topics=raw", "sink.topic=clean", "dead.letters.topic=dead"]
    config = load(None, [*named, "kafka.bootstrap.servers=a:1"], {})

    tools = KafkaTools("a:1")
    words = [shlex.split(each) for each in [*grants(config, tools), tools.delete_group(config.group_id)]]

    assert 2 == sum(config.group_id in each for each in words)
    assert 1 == sum(f"winnow/{config.group_id}/" in each for each in words)
