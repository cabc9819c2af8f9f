"""What a command suggests can be copied: it names the file and the options of that command."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from app.cli import main
from app.cli.exact import exact, exactly, has_read
from app.cli.layout import View
from app.cures import CHECK, LOOK_AGAIN
from app.errors import Unreachable
from app.model import CommittedOffset, Partition
from tests.fakes.driver import DriverKafka
from tests.fakes.patients import FirstTimes
from tests.support.configuration import file_of
from tests.unit.config.good import GOOD


def winnow(folder: Path, *command: str) -> tuple[str, str, str]:
    """Run a command; return its outputs, and the options that it should suggest."""
    file = file_of(GOOD, folder)
    done = CliRunner().invoke(main, [*command, "-c", str(file), "--set", "group.id=b"])
    return done.stdout, done.stderr, f"-c {file.absolute()} --set group.id=b"


@pytest.mark.parametrize("command", [["lag"], ["offsets", "show"], ["pause"], ["check", "--connect"]], ids=str)
def test_an_error(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_the_problem_of_a_partition(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a table, as JSON, and in a report."""
    kafka = DriverKafka(p0=(2, 10))
    kafka.committed = {Partition("raw", 0): CommittedOffset(1)}
    monkeypatch.setattr("app.start.clients", lambda _: kafka.clients)
    monkeypatch.setattr("app.start.first_records", lambda *_: FirstTimes())

    shown, _, options = winnow(tmp_path, *command)

    assert f"winnow offsets reset {options} --topic raw:0 --to-earliest" in shown
    assert "winnow.yaml" not in shown.replace(options, "")


def test_what_is_not_winnows_stays() -> None:
    """A record may hold the same words, and outside a command there is no configuration."""
    partitions = [{"problem": CHECK, "metadata": CHECK}, {"problem": None, "metadata": None}]
    view = View(("?PROBLEM", "?DETAIL"), [(CHECK, CHECK), (None, 5)], {"partitions": partitions})

    with click.Context(main):
        has_read("-c mine")
        shown, ours = exactly(view), "winnow check -c mine --connect"
    assert [(ours, CHECK), (None, 5)] == list(map(tuple, shown.rows))
    assert {"partitions": [{"problem": ours, "metadata": CHECK}, partitions[1]]} == shown.value
    assert CHECK == exact(CHECK)
