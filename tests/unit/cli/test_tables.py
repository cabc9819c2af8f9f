"""Commands print a table that tools can split, or one JSON value."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
import pytest
from click.testing import CliRunner
from rich.progress import Task

from app.cli import main
from app.cli.layout import View
from app.cli.tables import RateColumn, exact, exactly, has_read, progress, repeat, show, steps
from app.cures import CHECK, LOOK_AGAIN
from app.errors import Unreachable
from app.model import CommittedOffset, Partition
from tests.fakes.driver import DriverKafka
from tests.fakes.patients import FirstTimes
from tests.support.configuration import file_of
from tests.unit.config.good import GOOD

VIEW = View(("TOPIC", "#LAG"), [("raw", 5), ("a-long-name", None)], {"lag": 5}, code=1, footer="lag 5")


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers are right-aligned, missing values are dashes, and no line is wrapped."""
    assert 1 == show(VIEW._replace(footer="x" * 300), as_json=False)

    head, first, second, footer = capsys.readouterr().out.splitlines()
    assert ["TOPIC", "LAG"] == head.split()
    assert ["raw", "5"] == first.split()
    assert ["a-long-name", "-"] == second.split()
    assert "x" * 300 == footer.rstrip()


@pytest.mark.parametrize(("notes", "shown"), [(["", None], "LAG"), (["", "late"], "LAG NOTE")])
def test_a_column_that_may_be_left_out(notes: list[str | None], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A column marked so is left out if no row has something in it."""
    show(View(("#LAG", "?NOTE"), [(5, note) for note in notes], {}), as_json=False)

    assert shown.split() == capsys.readouterr().out.splitlines()[0].split()


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The value is one line, with the same exit code."""
    assert 1 == show(VIEW, as_json=True)
    assert {"lag": 5} == json.loads(capsys.readouterr().out)


def test_to_watch_goes_on_while_kafka_is_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage is a line on stderr, and watching continues. Ctrl-C exits with 0."""
    looks: Iterator[View | BaseException] = iter([VIEW, Unreachable("no answer"), VIEW, KeyboardInterrupt()])
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)

    def look() -> View:
        found = next(looks)
        if isinstance(found, BaseException):
            raise found
        return found

    assert 0 == repeat(look, 2.0, as_json=True)

    printed = capsys.readouterr()
    assert [{"lag": 5}] * 2 == [json.loads(line) for line in printed.out.splitlines()]
    assert "winnow: no answer\n" == printed.err


def test_a_progress_bar_has_a_rate_and_an_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, on stderr; a step replaces the one before it."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "80")

    with steps() as step:
        step("reading", 100)(50)
        step("comparing", 10)(10)

    out, err = capsys.readouterr()
    assert "" == out
    assert ("comparing", "100%", "0:00:00") == tuple(word for word in ("comparing", "100%", "0:00:00") if word in err)
    assert (
        "1,235 offsets/s"
        == RateColumn().render(cast("Task", SimpleNamespace(speed=1234.6, fields={"unit": "offsets"}))).plain
    )
    assert "" == RateColumn().render(cast("Task", SimpleNamespace(speed=None))).plain


def test_elsewhere_there_is_no_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """A log or a pipe gets no control characters."""
    with progress("reading", 100) as advance:
        advance(50)

    assert ("", "") == capsys.readouterr()


def winnow(folder: Path, *command: str) -> tuple[str, str, str]:
    """Run a command; return its outputs, and the options that it should suggest."""
    file = file_of(GOOD, folder)
    done = CliRunner().invoke(main, [*command, "-c", str(file), "--set", "group.id=b"])
    return done.stdout, done.stderr, f"-c {file.absolute()} --set group.id=b"


class TestCommandsToCopy:
    """What a command suggests can be copied: it names the file and the options of that command."""

    @pytest.mark.parametrize("command", [["lag"], ["offsets", "show"], ["pause"], ["check", "--connect"]], ids=str)
    def test_an_error(self, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A command for `winnow.yaml` would act on another group where another file has that name."""

        def away(_: object) -> None:
            raise Unreachable("so far", LOOK_AGAIN)

        monkeypatch.setattr("app.start.clients", away)

        _, error, options = winnow(tmp_path, *command)

        assert f"winnow: so far: look again: winnow lag {options} --watch\n" == error

    @pytest.mark.parametrize(
        "command",
        [["lag"], ["lag", "--json"], ["offsets", "show"], ["offsets", "show", "--json"], ["check", "--connect"]],
        ids=str,
    )
    def test_the_problem_of_a_partition(
        self, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In a table, as JSON, and in a report."""
        kafka = DriverKafka(p0=(2, 10))
        kafka.committed = {Partition("raw", 0): CommittedOffset(1)}
        monkeypatch.setattr("app.start.clients", lambda _: kafka.clients)
        monkeypatch.setattr("app.start.first_records", lambda *_: FirstTimes())

        shown, _, options = winnow(tmp_path, *command)

        assert f"winnow offsets reset {options} --topic raw:0 --to-earliest" in shown
        assert "winnow.yaml" not in shown.replace(options, "")

    def test_what_is_not_winnows_stays(self) -> None:
        """A record may hold the same words, and outside a command there is no configuration."""
        partitions = [{"problem": CHECK, "metadata": CHECK}, {"problem": None, "metadata": None}]
        view = View(("?PROBLEM", "?DETAIL"), [(CHECK, CHECK), (None, 5)], {"partitions": partitions})

        with click.Context(main):
            has_read("-c mine")
            shown, ours = exactly(view), "winnow check -c mine --connect"
        assert [(ours, CHECK), (None, 5)] == list(map(tuple, shown.rows))
        assert {"partitions": [{"problem": ours, "metadata": CHECK}, partitions[1]]} == shown.value
        assert CHECK == exact(CHECK)
