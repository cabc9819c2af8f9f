"""`winnow dlq` without a Kafka: what it lists and shows, and the target topics of a replay."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.model import Partition
from app.operate.dead_letters import Letter
from app.records import Record
from tests.fakes.driver import DriverKafka
from tests.support.configuration import file_of
from tests.support.packages import install
from tests.unit.config.good import GOOD


@pytest.mark.parametrize("topic", ["raw", "dead", "dead.replayed", "dead.parked"])
def test_lines_go_to_no_other_topic_of_the_service(topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines in a source topic would be read again and become dead letters."""
    file = file_of(GOOD | {"dead.letters": {"topic": "dead"}}, tmp_path)
    monkeypatch.setattr("app.start.clients", lambda _: DriverKafka(p0=(0, 9)).clients)

    done = CliRunner().invoke(main, ["dlq", "replay", "-c", str(file), "--into", topic, "--dry-run"])

    assert 2 == done.exit_code, done.output
    assert f"--into: {topic!r} is one of the service's topics" in done.stderr


def test_a_reason_that_may_be_misspelt_is_questioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command goes on, as a dead letter may be of another parser; a known or a strange reason raises no question."""
    file = file_of(GOOD, tmp_path)
    monkeypatch.setattr(sys.modules["app.cli.dlq"], "_dead_letters", lambda _: Empty())
    reasons = [each for name in ("housid", "houseid", "to_large", "org.acme.Error") for each in ("--reason", name)]

    for command in ("ls", "stats"):
        done = CliRunner().invoke(main, ["dlq", command, "-c", str(file), *reasons])
        assert 0 == done.exit_code, done.output
        assert [
            "winnow: --reason housid: this configuration gives no such reason; did you mean houseid?",
            "winnow: --reason to_large: this configuration gives no such reason; did you mean too_large?",
        ] == done.stderr.splitlines()


def test_the_reasons_of_an_own_parser_are_not_questioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows them, whatever it calls its `reasons`; `parse_error` is near to a reason of Winnow's own."""
    parser = "class Own:\n    def parse(self, lines): ...\n    def reasons(self): ..."
    install(tmp_path, "somebodys_own", parser, "[winnow.parsers]\nown = somebodys_own:Own")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys.modules["app.cli.dlq"], "_dead_letters", lambda _: Empty())
    file = file_of(GOOD | {"parser": {"name": "own"}}, tmp_path)

    done = CliRunner().invoke(main, ["dlq", "ls", "-c", str(file), "--reason", "parse_error"])

    assert (0, "") == (done.exit_code, done.stderr), done.exception


@pytest.mark.parametrize(
    ("there", "arguments", "footer"),
    [
        (0, [], "no dead letters in raw-logs.dlq"),
        (10, [], "10 dead letters in raw-logs.dlq; in full: dlq show 0@9"),
        (
            99,
            [],
            "the last 10 in raw-logs.dlq; more: --limit 100; in full: dlq show 0@98",
        ),
        (
            99,
            ["--limit", "2"],
            "the last 2 in raw-logs.dlq; more: --limit 20; in full: dlq show 0@98",
        ),
    ],
)
def test_the_last_ten_are_listed(
    there: int, arguments: list[str], footer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line says how to see more of them, and more of one."""
    monkeypatch.setattr(sys.modules["app.cli.dlq"], "_dead_letters", lambda _: Many(there))
    command = ["dlq", "ls", "-c", str(file_of(GOOD, tmp_path)), *arguments]

    rows = CliRunner().invoke(main, command).stdout.splitlines()
    found = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)

    limit = int(arguments[-1]) if arguments else 10
    assert footer == rows[-1]
    assert [f"0@{n}" for n in range(there)][-limit:] == [each.split()[0] for each in rows[1:-1]]
    assert (there > limit, min(there, limit)) == (found["more"], len(found["dead_letters"]))


def test_one_is_shown_with_its_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none the command says so and ends with 1."""
    monkeypatch.setattr(sys.modules["app.cli.dlq"], "_dead_letters", lambda _: Many(1))

    def show(place: str) -> Result:
        return CliRunner().invoke(main, ["dlq", "show", "-c", str(file_of(GOOD, tmp_path)), place])

    there, nowhere = show("0@0"), show("0@1")

    assert (0, ["header", "own", "1"]) == (there.exit_code, there.stdout.splitlines()[-1].split())
    told = "there is no dead letter at raw-logs.dlq-0@1\n"
    assert (1, "", told) == (nowhere.exit_code, nowhere.stdout, nowhere.stderr)


@pytest.mark.parametrize(
    ("stamps", "times", "said"),
    [
        (
            (2**63 - 1, 0),
            ["9223372036854775807 ms", "1970-01-01T00:00:00.000Z"],
            ["from 1970-01-01T00:00:00.000Z to 9223372036854775807 ms"],
        ),
        ((-1, 0), ["-", "1970-01-01T00:00:00.000Z"], ["from 1970-01-01T00:00:00.000Z to 1970-01-01T00:00:00.000Z"]),
        ((-1, -1), ["-", "-"], []),
    ],
)
def test_a_dead_letter_has_any_timestamp(
    stamps: Sequence[int], times: list[str], said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer chooses it: one that is no date is shown as it is, and a missing one is no part of the range."""
    monkeypatch.setattr(sys.modules["app.cli.dlq"], "_dead_letters", lambda _: Many(2, stamps))

    def lines(*arguments: str) -> list[str]:
        done = CliRunner().invoke(main, ["dlq", *arguments, "-c", str(file_of(GOOD, tmp_path))])
        assert 0 == done.exit_code, done.output
        return done.stdout.splitlines()

    assert times == [re.split(" {2,}", each)[1] for each in lines("ls")[1:-1]]
    assert times == [re.split(" {2,}", lines("show", f"0@{n}")[3])[1] for n in (0, 1)]
    assert ["2 dead letters", *said] == lines("stats")[-1].split(", ")


class Many:
    """A topic with so many dead letters."""

    def __init__(self, count: int, stamps: Sequence[int] = range(99)) -> None:
        self._letters = [
            Letter.of(Record(Partition("dead", 0), n, stamps[n], None, b"", [("own", b"1")])) for n in range(count)
        ]

    def chosen(self, _selection: object) -> list[Letter]:
        return self._letters

    def newest(self, _selection: object, limit: int) -> list[Letter]:
        return self._letters[-limit:]

    def at(self, _partition: int, offset: int) -> Letter | None:
        return next((each for each in self._letters if each.record.offset == offset), None)


class Empty:
    """A topic without dead letters."""

    def chosen(self, _selection: object) -> list[Letter]:
        return []

    def newest(self, _selection: object, _limit: int) -> list[Letter]:
        return []
