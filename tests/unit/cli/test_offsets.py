"""Usage errors of `winnow offsets reset` and of times, found before anything connects."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.model import CommittedOffset, Partition
from app.operate.resets import NO_OFFSET, Reset
from app.operate.stores import Stores
from app.times import assumed
from tests.fakes.driver import DriverKafka
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
        (["--to-datetime", "yesterday"], "'yesterday' is not a time: write 2026-11-22T06:00, 10 minutes ago, or"),
        (["--by-duration", "soon"], "'soon' is not a duration: write 90s, 10m, 1h or 2 days"),
        (["--to-time", "2026-13-01"], "'2026-13-01' is not a time"),
    ],
)
def test_what_is_no_time(file: Path, arguments: list[str], problem: str) -> None:
    """An unreadable time is wrong usage, reported before Kafka is asked."""
    done = reset(file, *arguments)

    assert 2 == done.exit_code
    assert problem in done.stderr


@pytest.mark.parametrize(
    ("command", "begin", "end"),
    [
        (["audit"], "--from", "--to"),
        (["replay", "--into", "trial"], "--from", "--to"),
        (["replay", "--into", "trial"], "--since", "--until"),
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
    assert "--until: the end must be later than the start" in done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["audit"], "give either --since (and perhaps --until) or --last"),
        (["replay", "--into", "trial"], "give either --since and --until, or --last"),
        (["replay", "--into", "trial", "--until", "1h ago"], "give either --since and --until, or --last"),
        (["dlq", "ls", "--last", "1h", "--since", "2h ago"], "give either --last or --since and --until"),
        (["audit", "--last", "1h", "--to", "2h ago"], "give either --last or --since and --until"),
    ],
    ids=str,
)
def test_which_times(file: Path, command: list[str], message: str) -> None:
    """A range is given in one of two ways, wherever one is taken."""
    done = CliRunner().invoke(main, [*command, "-c", str(file)])

    assert 2 == done.exit_code
    assert message in done.stderr


def test_a_time_without_a_zone_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read in the zone of this machine, which may not be the one that its user has in mind."""
    monkeypatch.setattr("app.kafka.topics.ANSWER_SECONDS", 0.3)

    done = reset(file, "--to-time", "2026-11-25 10:00")

    first, *_ = done.stderr.splitlines()
    assert f"2026-11-25 10:00 is read as {assumed('2026-11-25 10:00')}" == first


@pytest.mark.parametrize("times", [["--last", "1h"], ["--since", "2h ago", "--until", "1h ago"]], ids=" ".join)
def test_a_replay_tells_how_to_resume_it(file: Path, times: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words would be another range later."""
    monkeypatch.setattr("app.kafka.topics.ANSWER_SECONDS", 0.3)

    done = CliRunner().invoke(main, ["replay", "--into", "trial", "-c", str(file), *times])

    told = r"to resume this replay if it is stopped, give --since \S+Z --until \S+Z"
    assert re.search(told, done.stderr)


def test_a_replay_that_would_begin_in_the_future(file: Path) -> None:
    """There is nothing to replay, nor to resume. Records with such a time can be chosen with --until."""
    done = CliRunner().invoke(main, ["replay", "--into", "trial", "-c", str(file), "--since", "2200-01-01T00:00:00Z"])

    assert 2 == done.exit_code
    assert "nothing to replay without --until" in done.stderr
    assert "to resume" not in done.stderr


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


def test_what_has_no_offset_keeps_none_from_its_place(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--to-current` is the cure for a new sink, and a partition that was never read names no old one."""
    kafka, carried_out = DriverKafka(p0=(2, 10), p1=(2, 10)), list[Reset]()
    kafka.committed = {Partition("raw", 0): CommittedOffset(5)}
    monkeypatch.setattr("app.start.clients", lambda _: kafka.clients)
    monkeypatch.setattr(sys.modules["app.cli.offsets"], "carry_out", lambda planned, *_: carried_out.extend(planned))

    done, shift = reset(file, "--to-current", "--json"), reset(file, "--shift-by", "1")

    assert (0, 1) == (done.exit_code, shift.exit_code)
    assert [(0, 5)] == [(each.at.partition.number, each.offset) for each in carried_out]
    kafka.committed[Partition("raw", 1)] = CommittedOffset.not_readable("x")
    assert 1 == reset(file, "--to-current").exit_code
    found = json.loads(done.stdout)
    assert (True, [None, NO_OFFSET]) == (found["done"], [each["note"] for each in found["partitions"]])


def test_a_name_that_two_stores_have(file: Path) -> None:
    """Both names meant the first store, whose offsets were found to be the same as its own."""
    stores = "offsets={store: {name: files, url: 'file:///a'}, mirrors: [{name: files, url: 'file:///b'}]}"
    settings = ["--set", stores, "--set", "delivery.guarantee=at-least-once"]

    done = CliRunner().invoke(
        main, ["offsets", "migrate", "-c", str(file), "--from", "files", "--to", "kafka", *settings]
    )

    assert 2 == done.exit_code
    assert "--from: 2 stores are named files: write out the one that is meant" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{name: redis, url: 'redis://h', password: hunter2}", "--store: redis keeps no history"),
        ("{name: redis, password: hunter2", "--store must be the name of a store, or one in the configuration's form"),
        ("name: redis, password: hunter2", "--store must be the name of a store, or one in the configuration's form"),
        (
            "[{name: redis, password: hunter2}]",
            "--store must be the name of a store, or one in the configuration's form",
        ),
    ],
    ids=["without a history", "no brace", "no braces", "a list"],
)
def test_the_password_of_a_store_is_not_told(text: str, said: str, file: Path) -> None:
    """It may be given on the command line, and the terminal may be recorded."""
    done = CliRunner().invoke(main, ["offsets", "history", "-c", str(file), "--store", text])

    assert (2, False) == (done.exit_code, "hunter2" in done.stderr)
    assert said in done.stderr


def test_one_problem_ends_with_1(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other partition is well. Another tool's offset has no counts, which only Winnow's metadata has."""
    kafka = DriverKafka(p0=(2, 10), p1=(2, 10))
    kafka.committed = {Partition("raw", 0): CommittedOffset(5, "theirs"), Partition("raw", 1): CommittedOffset(1, "")}
    monkeypatch.setattr("app.start.clients", lambda _: kafka.clients)

    def show(*arguments: str) -> tuple[int, list[list[str]]]:
        done = CliRunner().invoke(main, ["offsets", "show", "-c", str(file), *arguments])
        return done.exit_code, [line.split(maxsplit=7) for line in done.stdout.splitlines()[1:]]

    code, (well, (*deleted, problem), *_) = show()

    assert (1, ["raw", "0", "5", "-", "-", "-", "-"]) == (code, well)
    assert ["raw", "1", "1", "-", "-", "-", "-"] == deleted
    assert "were deleted before they were read" in problem
    assert (0, 1) == (show("--topic", "raw:0")[0], show("--topic", "raw:1")[0])


@pytest.mark.parametrize(
    ("terminal", "arguments", "answer", "code", "asked"),
    [
        (True, [], "n", 1, True),
        (True, [], "y", 0, True),
        (True, ["--yes"], "", 0, False),
        (True, ["--dry-run"], "", 0, False),
        (False, [], "", 0, False),
        (False, ["--yes"], "", 0, False),
    ],
)
def test_it_asks_on_a_terminal(
    *,
    terminal: bool,
    arguments: list[str],
    answer: str,
    code: int,
    asked: bool,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """People see what they are about to change; scripts go on as before, and JSON is not mixed with the question."""
    kafka = DriverKafka(p0=(2, 10), p1=(2, 10))
    carried_out: list[Reset] = []
    module = sys.modules["app.cli.offsets"]
    monkeypatch.setattr("app.start.clients", lambda _: kafka.clients)
    monkeypatch.setattr(module, "_is_terminal", lambda: terminal)
    monkeypatch.setattr(module, "carry_out", lambda planned, *_: carried_out.extend(planned))
    command = ["offsets", "reset", "-c", str(file), "--to-earliest", "--json", *arguments]

    done = CliRunner().invoke(main, command, input=answer)

    assert code == done.exit_code, done.output
    assert asked is ("set 2 offsets? [y/N]" in done.stderr)
    assert asked is ("NEW-OFFSET" in done.stderr)
    assert (0 if code or "--dry-run" in arguments else 2) == len(carried_out)
    assert code or len(carried_out) == 2 * json.loads(done.stdout)["done"]


def test_a_stdout_without_an_arrow_ends_no_move(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it lacks is escaped, also in the help; it was told when the first partition had been moved."""

    def migrate(stores: Stores, *_: object, **__: object) -> bool:
        stores._say("moved    raw-0: nothing → 5")
        return True

    monkeypatch.setattr(Stores, "migrate", migrate)
    command = ["offsets", "migrate", "-c", str(file), "--from", "kafka", "--to", "source"]

    done = CliRunner(charset="latin-1").invoke(main, command)
    helped = CliRunner(charset="latin-1").invoke(main, [*command, "--help"])

    assert (0, "moved    raw-0: nothing \\u2192 5\n") == (done.exit_code, done.stdout), done.exception
    assert 0 == helped.exit_code, helped.exception
    assert "\\u2026}" in helped.stdout
