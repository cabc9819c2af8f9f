"""Usage errors of `winnow offsets reset` and of times, found before anything connects."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from tests.support.configuration import file_of
from tests.unit.config.good import GOOD


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return file_of(GOOD | {"kafka": {"bootstrap.servers": "127.0.0.1:1"}}, tmp_path)


def reset(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["offsets", "reset", "-c", str(file), *arguments])


@pytest.mark.parametrize(
    "arguments",
    [[], ["--to-earliest", "--to-latest"], ["--to-offset", "5", "--shift-by", "0"], ["--to-offset", "-5"]],
    ids=str,
)
def test_exactly_one_place(file: Path, arguments: list[str]) -> None:
    """No target, or two at once, is wrong usage."""
    assert 2 == reset(file, *arguments).exit_code


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--to-datetime", "yesterday"], "--to-datetime: "),
        (["--by-duration", "soon"], "--by-duration: "),
        (["--to-datetime", "2026-13-01"], "--to-datetime: "),
    ],
)
def test_what_is_no_time(file: Path, arguments: list[str], problem: str) -> None:
    """An unreadable time is wrong usage, reported before Kafka is asked."""
    done = reset(file, *arguments)

    assert 2 == done.exit_code
    assert done.stderr.startswith(f"configuration: {problem}")


@pytest.mark.parametrize(
    ("command", "begin", "end"),
    [
        (["audit"], "--from", "--to"),
        (["replay", "--into", "trial"], "--from", "--to"),
        (["dlq", "stats"], "--since", "--until"),
        (["dlq", "replay"], "--since", "--until"),
    ],
    ids=str,
)
def test_times_in_the_wrong_order(file: Path, command: list[str], begin: str, end: str) -> None:
    """An audit of an empty range would find nothing wrong."""
    times = [begin, "2026-11-22T07:00:00Z", end, "2026-11-22T06:00:00Z"]

    done = CliRunner().invoke(main, [*command, "-c", str(file), *times])

    assert 2 == done.exit_code
    assert done.stderr.startswith(f"configuration: {end}: the end must be later than the start")


@pytest.mark.parametrize("command", [["offsets", "reset", "--to-latest"], ["offsets", "show"], ["lag"]], ids=str)
def test_an_unreachable_kafka_ends_with_3(file: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes at once."""
    monkeypatch.setattr("app.kafka.topics.ANSWER_SECONDS", 0.3)

    done = CliRunner().invoke(main, [*command, "-c", str(file)])

    assert (3, "") == (done.exit_code, done.stdout)
    assert "Kafka is not responding" in done.stderr


def test_a_store_that_remembers_nothing(file: Path) -> None:
    """With the store `none` there is nothing to show or set."""
    store = ["--set", "offsets={store: {name: none}}", "--set", "delivery.guarantee=at-least-once"]

    done = reset(file, "--to-latest", *store)

    assert 2 == done.exit_code
    assert "offsets.store: none has no offset to set: restart Winnow" in done.stderr
