"""Finding records that kill or hang the parser, in a process that runs it in forks."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from multiprocessing.connection import Pipe
from pathlib import Path

import pyarrow as pa
import pytest

from app.executor import trials
from app.executor.parse import parse
from app.executor.trials import for_forks, parse_apart, serve
from parsers.contract import Parsed
from parsers.idc_access_log import IdcAccessLog
from parsers.testing import batch
from tests.fakes import make_task_config
from tests.independent import cleansed, line
from tests.support.waiting import PATIENCE

INNER = IdcAccessLog()


def hang(sleep: Callable[[float], object]) -> None:
    """Hang until the alarm. If one is set, let it come now: no other record runs out of time on a busy machine."""
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    sleep(3_600)


DEADLY: Mapping[bytes, Callable[[], object]] = {
    b"exit": lambda: os._exit(0),
    b"crash": lambda: (faulthandler.disable(), ctypes.string_at(0)),  # type: ignore[func-returns-value]
    b"leave": lambda: sys.exit(3),
    b"hang": lambda: hang(time.sleep),
    b"hang in C": lambda: hang(ctypes.PyDLL(None).sleep),  # holds the GIL
}


class DeadlyParser:
    """The built-in parser, but some lines kill or hang it."""

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        for each in lines.to_pylist():
            if each in DEADLY:
                DEADLY[each]()
        return INNER.parse(lines)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a fork may get no processor for seconds. Only a record that is to hang may run out of time."""
    for limit in ("PIECE_SECONDS", "ALONE_SECONDS", "SET_UP_SECONDS"):
        monkeypatch.setattr(trials, limit, PATIENCE)


def records(number: int, **deadly: int) -> pa.BinaryArray:
    """Make good lines, with deadly ones at some places."""
    lines = [line(n) for n in range(number)]
    for what, place in deadly.items():
        lines[place] = what.replace("_", " ").encode()
    return batch(lines)


@pytest.mark.parametrize(
    ("deadly", "detail"),
    [
        ("exit", "the parser process exited with code 0"),
        ("crash", "the parser process was killed by SIGSEGV"),
        ("leave", "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("place", [0, 1_234, 1_999])
def test_one_record_is_found(deadly: str, detail: str, place: int) -> None:
    """Only this record becomes a reject, wherever it is and whatever it does. All others are cleansed, in order."""
    the_one_is_found(deadly, detail, place)


@pytest.mark.parametrize("deadly", ["hang", "hang_in_C"])
def test_one_that_hangs_is_found(deadly: str) -> None:
    """The kernel ends its process, even if a C call holds the GIL."""
    the_one_is_found(deadly, f"the parser did not return within {PATIENCE:.0f} s", 1_234)


def the_one_is_found(deadly: str, detail: str, place: int) -> None:
    parsed = parse_apart(DeadlyParser(), records(2_000, **{deadly: place}), clock=lambda: 0.0)

    assert [(place, "parser_error", detail)] == list(parsed.rejects())
    assert [cleansed(n) for n in range(2_000) if n != place] == parsed.values.to_pylist()
    assert [n for n in range(2_000) if n != place] == parsed.rows.tolist()


def test_a_few_attempts_find_it(tmp_path: Path) -> None:
    """With a record that hangs, each failed attempt takes time: four of them find one in 20,000."""
    attempts = tmp_path / "attempts"

    class Counted(DeadlyParser):
        def parse(self, lines: pa.BinaryArray) -> Parsed:
            if b"crash" in lines.to_pylist():
                with attempts.open("a") as file:
                    file.write("crash ")
            return super().parse(lines)

    parse_apart(Counted(), records(20_000, crash=12_345), clock=lambda: 0.0)

    assert 4 * "crash " == attempts.read_text()


def test_without_such_a_record_nothing_changes() -> None:
    """The results are those of the parser for all records at once, rejects included."""
    values = records(1_500, rubbish=7)

    apart, at_once = parse_apart(INNER, values, clock=lambda: 0.0), parse(INNER, values)

    assert [*at_once.rejects()] == [*apart.rejects()]
    assert at_once.values.equals(apart.values)
    assert at_once.rows.tolist() == apart.rows.tolist()


def test_nothing_makes_nothing() -> None:
    """If only the end of a partition was read, there is nothing to try."""
    assert 0 == parse_apart(DeadlyParser(), records(0)).records


def test_records_that_kill_only_together_are_cleansed() -> None:
    """A record that is harmless alone does not become a dead letter."""

    class Jealous(DeadlyParser):
        def parse(self, lines: pa.BinaryArray) -> Parsed:
            if len(lines) > 1:
                os._exit(1)
            return super().parse(lines)

    parsed = parse_apart(Jealous(), records(50), clock=lambda: 0.0)

    assert (50, 0) == (len(parsed.rows), len(parsed.reject_rows))


def test_a_fork_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process may be started, the task points to the stderr of this one."""

    def no_room() -> int:
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(os, "fork", no_room)
    ours, theirs = Pipe()
    ours.send(make_task_config())
    ours.send(records(1))

    with ours, theirs, pytest.raises(BlockingIOError):
        serve(os.dup(theirs.fileno()))


def test_the_end_of_the_task_is_no_failure() -> None:
    ours, theirs = Pipe()
    ours.send(make_task_config())
    ours.close()

    with theirs:
        serve(os.dup(theirs.fileno()))


def test_what_took_long_is_reported_first() -> None:
    """After some time, what is done so far is reported, so that it can be committed; at least one batch is."""
    ticks = count(step=trials.REPORT_SECONDS + 1)

    parsed = parse_apart(DeadlyParser(), records(2_000, crash=600), clock=lambda: float(next(ticks)))

    assert trials.PIECE == parsed.records


def test_a_parser_that_is_slow_is_only_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that takes too long is repeated in smaller ones, and none of its records is lost."""
    monkeypatch.setattr(trials, "PIECE_SECONDS", 0.1)

    class SlowParser(DeadlyParser):
        def parse(self, lines: pa.BinaryArray) -> Parsed:
            time.sleep(0.002 * len(lines))
            return super().parse(lines)

    assert 100 == len(parse_apart(SlowParser(), records(100), clock=lambda: 0.0).rows)


def test_a_parser_may_set_itself_up_at_its_first_call() -> None:
    """This may take longer than a record may, and each fork begins anew."""

    class Lazy:
        ready = False

        def parse(self, lines: pa.BinaryArray) -> Parsed:
            if not self.ready and any(lines.to_pylist()):
                os._exit(1)  # the time for the records is over
            self.ready = True
            return INNER.parse(lines)

    assert 4 == len(parse_apart(Lazy(), records(4), clock=lambda: 0.0).rows)


def test_a_parser_with_threads_is_built_by_each_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork has none of its parent's threads, so the parser would wait for them for ever."""

    class Pooled:
        def __init__(self, _: object) -> None:
            self._pool = ThreadPoolExecutor(1)
            self._inner = self._pool.submit(lambda: INNER).result()

        def parse(self, lines: pa.BinaryArray) -> Parsed:
            return self._pool.submit(self._inner.parse, lines).result()

    monkeypatch.setattr(trials, "make_parser", Pooled)

    assert 4 == len(parse_apart(for_forks(make_task_config()), records(4), clock=lambda: 0.0).rows)


def test_what_fails_without_records_is_tried_once(tmp_path: Path) -> None:
    """Each time may take as long as setting up may."""
    attempts, set_ups = tmp_path / "attempts", [*trials.SET_UPS]

    class Allergic:
        def parse(self, lines: pa.BinaryArray) -> Parsed:
            if lines.null_count:
                with attempts.open("a") as file:
                    file.write("attempt ")
                os._exit(1)
            return INNER.parse(lines)

    for _ in range(3):
        assert 4 == len(parse_apart(Allergic(), records(4), clock=lambda: 0.0, set_ups=set_ups).rows)

    assert "attempt " == attempts.read_text()


def test_setting_up_that_fails_once_is_tried_again(tmp_path: Path) -> None:
    """Without it, a parser that needs it would fail with each record."""
    ready = tmp_path / "ready"

    class Lazy:
        def parse(self, lines: pa.BinaryArray) -> Parsed:
            if lines.null_count:
                if not ready.exists():
                    ready.touch()
                    os._exit(1)
                self.is_set_up = True
            elif not hasattr(self, "is_set_up"):
                os._exit(1)
            return INNER.parse(lines)

    assert 4 == len(parse_apart(Lazy(), records(4), clock=lambda: 0.0).rows)


def test_what_a_parser_has_started_ends_with_it() -> None:
    """A fork's end is noticed although its child keeps the pipe open, and no child is left behind."""
    reader, writer = os.pipe()

    class Parent:
        def parse(self, lines: pa.BinaryArray) -> Parsed:
            if b"crash" in lines.to_pylist():
                if os.fork() == 0:
                    time.sleep(PATIENCE)
                    os.write(writer, b"a child is left")
                os._exit(7)
            return INNER.parse(lines)

    parsed = parse_apart(Parent(), records(9, crash=3), clock=lambda: 0.0)
    os.close(writer)

    assert [(3, "parser_error", "the parser process exited with code 7")] == list(parsed.rejects())
    assert b"" == os.read(reader, 99)
    os.close(reader)


@pytest.mark.parametrize("deadly", [b"exit", b"hang"])
def test_a_parser_that_fails_without_records_blames_none(deadly: bytes) -> None:
    class Allergic:
        def parse(self, lines: pa.BinaryArray) -> Parsed:
            if lines.null_count:
                DEADLY[deadly]()
            return INNER.parse(lines)

    assert 4 == len(parse_apart(Allergic(), records(4), clock=lambda: 0.0).rows)
