"""docs/json.md has every key that a command prints with --json, with its type; and no other."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli import main
from app.driver.pause import PauseMark
from app.model import Partition
from app.records import Record
from tests.fakes.driver import DriverKafka
from tests.fakes.patients import Patient
from tests.fakes.pauses import PauseOffsets
from tests.fakes.views import lags, views
from tests.independent import line
from tests.support.commands import LEAVES
from tests.support.configuration import file_of
from tests.support.docs import ROOT
from tests.unit.config.good import GOOD

PAGE = (ROOT / "docs/json.md").read_text()
NAMES = {str: "text", int: "number", float: "number", bool: "true or false", type(None): "null"}
WITHOUT_VERSION = {"tap", "parse"}
FILTERS = [{"drop": {"field": "url", "matches": "^x"}, "limit": 0.5}]
Keys = dict[str, str]
"""The type of each key."""


def documented() -> dict[tuple[str, ...], Keys]:
    """Return the keys of the commands of each heading."""
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    return {tuple(re.findall(r"`(.+?)`", each.partition("\n")[0])): dict(keys_in(each)) for each in sections}


def keys_in(section: str) -> Iterator[tuple[str, str]]:
    """Yield each key of a table; a row may have several, of one type or of a type each."""
    for names, types in re.findall(r"^\| (`.*?`) \| (.*?) \|", section, re.MULTILINE):
        listed, kinds = re.findall(r"`(.+?)`", names), types.split(", ")
        yield from zip(listed, kinds if len(kinds) > 1 else kinds * len(listed), strict=True)


def values(value: object, at: str = "") -> Iterator[tuple[str, str]]:
    """Yield the key of each value that holds no other, and its type."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from values(each, f"{at}.{key}".lstrip("."))
    elif isinstance(value, list):
        for each in value:
            yield from values(each, f"{at}[]")
    else:
        yield at, NAMES[type(value)]


def says(key: str, kinds: str, found: str, kind: str) -> bool:
    """Whether a documented key is what was found: a word in capitals is any name, and an object may be null."""
    pattern = re.sub(r"\b[A-Z]+$", ".+", re.escape(key))
    if kind == "null" and key.startswith(f"{found}."):
        return True
    if kinds == "any":
        return re.match(rf"{pattern}(?![^.\[])", found) is not None
    return re.fullmatch(pattern, found) is not None and kind in (kinds, *kinds.split(" or "))


def parent(key: str) -> str:
    return key.rpartition(".")[0]


class Printed:
    """What each command prints, with fakes in place of Kafka."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self.found: dict[str, list[Any]] = defaultdict(list)
        for name, view in views(2).items():
            self.found[re.split(r" --|, ", name)[0]].append(view.value)
        shown = self.found["dlq show"][0]
        letter = {key: each for key, each in shown.items() if key not in ("version", "topic")}
        self.found["dlq show"] = [{"version": 1, "topic": shown["topic"], "dead_letters": [letter]}]
        self.found["transactions abort"] = [each | {"done": True} for each in self.found["transactions ls"]]
        kafka = DriverKafka(p0=(0, 9)).clients
        patch.setattr(
            "app.start.clients", lambda *_: replace(kafka, pauses=PauseMark(PauseOffsets(), "clean", ["dead"]))
        )
        patch.setattr("app.start.records", lambda *_: Source())
        patch.setattr(sys.modules["app.cli.filters"], "offsets_of", lambda *_: lags(2))
        patch.setattr(sys.modules["app.cli.doctor"], "_instruments", lambda _: ill().instruments())
        self.run("check", parser={"name": "idc-access-log", "samples": [{"line": "x", "output": "y"}]})
        self.run("check", sink={"topic": "raw"})
        self.run("config", "doctor", "pause", "resume")
        self.run("filters", filter=FILTERS)
        self.run("filters")
        self.run("tap", "--limit", "2")
        self.run("parse", text=line(1) + b"\nrubbish")
        self.found["parsers"] = [json.loads(CliRunner().invoke(main, ["parsers", "--json"]).stdout)]

    def run(self, *commands: str, text: bytes = b"", **config: Any) -> None:
        """Run some commands, or one with options, and take what they print."""
        file = file_of(GOOD | {"source": {"topics": ["raw"]}, "http": {"enabled": False}} | config, self._folder)
        lists = [commands] if "--limit" in commands else [[each] for each in commands]
        for command in lists:
            done = CliRunner().invoke(main, [*command, "-c", str(file), "--json"], input=text)
            self.found[command[0]] += map(json.loads, done.stdout.splitlines())


class Source:
    """A source with a good and a bad record."""

    def batches(self, _starts: object) -> Generator[list[Record]]:
        yield [Record(Partition("raw", 0), n, 1_000, None, text, []) for n, text in enumerate((line(1), b"rubbish"))]


def ill() -> Patient:
    """Return a service that has lost a line."""
    found = Patient()
    del found.lines[0]
    return found


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    with pytest.MonkeyPatch.context() as patch:
        return Printed(tmp_path_factory.mktemp("json"), patch).found


@pytest.mark.parametrize(
    ("commands", "keys"), documented().items(), ids=lambda each: str(each) if type(each) is tuple else ""
)
def test_each_key_is_documented(commands: tuple[str, ...], keys: Keys, printed: dict[str, list[Any]]) -> None:
    """With its type; and each documented key is printed by one of the commands."""
    found = {(*each, command) for command in commands for value in printed[command] for each in values(value)}
    mine = {(name, kind) for name, kind, _ in found if name != "version"}

    assert [] == sorted(each for each in mine if not any(says(*key, *each) for key in keys.items()))
    assert set() == {
        key
        for key, kinds in keys.items()
        if not any(says(key, kinds, *each) for each in mine if each[0] != parent(key))
    }
    assert {command: command not in WITHOUT_VERSION for command in commands} == {
        command: all(value.get("version") == 1 for value in printed[command]) for command in commands
    }


def test_each_command_with_json_is_documented() -> None:
    """A script's author finds it."""
    told = [command for commands in documented() for command in commands]

    with_json = (name for name, command in LEAVES.items() if any("--json" in each.opts for each in command.params))
    assert sorted(f"winnow {command}" for command in told) == sorted(with_json)
