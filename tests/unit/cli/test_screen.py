"""The screens of `winnow top` and `winnow lag --watch`, as a terminal of 80 columns and 24 lines shows them."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.text import Text

from app.cli import main, screen
from app.cli.lag import LagScreen
from app.cli.layout import View
from app.cli.top import TopScreen, sparkline
from app.model import CommittedOffset, Partition, Pause
from app.operate.lag import PartitionLag
from app.operate.watching import Look, WatchedLag
from tests.fakes.driver import DriverKafka
from tests.fakes.views import NOW, lags
from tests.support.configuration import file_of
from tests.unit.config.good import GOOD

SIZE = 80, 24


class Watched(WatchedLag):
    """A lag that the test says. A screen must poll to see it."""

    def __init__(self) -> None:
        self.look, self.trouble = None, ""
        self._said: Look | None = None
        self._found: list[PartitionLag] = []

    def poll(self) -> None:
        self.look = self._said

    def leave(self) -> None:
        pass

    def say(self, at: float, found: list[PartitionLag], pause: Pause | None = None) -> None:
        self._said, self._found = Look(at, found, pause), found

    @property
    def found(self) -> list[PartitionLag]:
        return self._found


def shown(what: screen.Screen) -> list[str]:
    """Look once; return the lines, which must fit."""
    what.poll()
    lines = [each.plain for each in what.lines(*SIZE)]
    assert len(lines) <= SIZE[1]
    assert max(map(cell_len, lines)) <= SIZE[0]
    assert "…" not in "".join(lines)
    return lines


def press(what: screen.Screen, keys: str) -> bool:
    return all(map(what.press, keys))


@pytest.mark.parametrize("make", [TopScreen, LagScreen])
def test_something_is_shown_before_kafka_has_answered(make: type[TopScreen | LagScreen]) -> None:
    """The clock, the group, and what it waits for; later an outage, while what is known stays."""
    watched = Watched()
    what = make("cleansing", watched)

    title, waits = shown(what)
    assert "cleansing" in title
    assert title.endswith(" UTC")
    assert "reading the offsets" == waits
    watched.say(1, lags(256), Pause(NOW, "vm"))
    watched.trouble = "Kafka is not responding"
    lines = shown(what)
    assert "Kafka is not responding" == lines[1]
    assert "q quit" in lines[-1]
    assert any("paused since" in each for each in lines)
    assert not press(what, "q")


@pytest.mark.parametrize("make", [TopScreen, LagScreen])
@pytest.mark.parametrize("width", range(1, 31))
def test_no_terminal_is_too_small(width: int, make: type[TopScreen | LagScreen]) -> None:
    """It shows what fits, in one line or five."""
    watched = Watched()
    watched.trouble = "Kafka is not responding"
    watched.say(1, lags(6), Pause(NOW, "vm"))
    what = make("cleansing", watched)

    assert what.lines(width, 1)
    what.poll()
    for height in range(1, 6):
        assert what.lines(width, height)


def test_the_worst_partition_comes_first() -> None:
    """The one with a problem, and then the largest lag: with 256 of them, the screen says how many it shows."""
    watched, found = Watched(), lags(256)
    watched.say(1, found)

    for what in (TopScreen("cleansing", watched), LagScreen("cleansing", watched)):
        lines = shown(what)
        rows = [each for each in lines if each.startswith(found[0].partition.topic)]
        assert ["255", "252"] == [each.split()[1] for each in rows[:2]], "each third has a problem"
        assert any(each.startswith("the first ") and each.endswith(" of 256") for each in lines)


def test_totals_are_a_dash_until_they_are_known() -> None:
    """A rate needs two looks, and an age a record. Then there is a trend."""
    watched = Watched()
    what = TopScreen("cleansing", watched)
    watched.say(1, lags(6, seconds=None))

    assert "at most - s; - records/s, - dead letters/s" in shown(what)[1]
    for at in (2, 3, 4):
        watched.say(at, lags(6, done=at * at))
        shown(what)
    lines = shown(what)
    assert "at most 1234567.5 s; 42.0 records/s, 0 dead letters/s" in lines[1]
    assert "records/s ▅▆█  at most 42.0" == lines[2]


def test_keys_sort_and_filter() -> None:
    """`s` sorts by the next thing, `/` asks for a text, in which `q` is a letter; Esc shows all again."""
    watched = Watched()
    watched.say(1, lags(256))
    what = TopScreen("cleansing", watched)

    for order in ("age", "records/s", "dead letters/s", "name", "lag"):
        assert press(what, "s")
        assert f"256 partitions by {order} " in shown(what)[-1]
    assert press(what, "/q-25\x7f")
    assert "with: q-2" in shown(what)[-1]
    assert press(what, "\x1b/-25\n")
    assert "7 of 256 partitions with '-25'" in shown(what)[-1]
    assert ["255", "252"] == [each.split()[1] for each in shown(what) if each.startswith("raw-logs")][:2]
    assert press(what, "/\x1b")
    assert "256 partitions by lag" in shown(what)[-1]
    assert not press(what, "q")


@pytest.mark.parametrize(
    ("values", "bars"), [([], ""), ([0, 0], "▁▁"), ([1, 2, 4, 8], "▂▃▅█"), ([9, 8, 4], "█▅")], ids=str
)
def test_a_sparkline(values: Sequence[float], bars: str) -> None:
    """The last values that fit, as parts of the largest."""
    assert bars == sparkline(values, 2 if len(values) == 3 else 10)
    assert "" == sparkline(values, 0) == sparkline(values, -1)


def test_a_key_comes_at_once() -> None:
    """Without Enter and without an echo; an arrow is no key, and the terminal is as before afterwards."""
    ours, theirs = pty.openpty()
    try:
        with screen.Keys(theirs) as keys:
            os.write(ours, b"q")
            assert "q" == keys.pressed(60)
            os.write(ours, b"\x1b[A")
            assert "" == keys.pressed(60)
            os.write(ours, b"\x1b")
            assert "\x1b" == keys.pressed(60)
            assert "" == keys.pressed(0)
        os.write(ours, b"q\n")
        assert b"q\r\n" == os.read(ours, 99), "the echo is on again, and was off"
    finally:
        os.close(ours)
        os.close(theirs)


def test_no_keys_without_a_terminal(tmp_path: Path) -> None:
    """A screen that a script shows is ended by a signal."""
    with (tmp_path / "stdin").open("w+") as stdin, screen.Keys(stdin.fileno()) as keys:
        stdin.write("q")
        stdin.seek(0)
        assert "" == keys.pressed(0)


class Once(screen.Screen):
    """A screen that is quit when it has been drawn."""

    def __init__(self) -> None:
        super().__init__("cleansing", Watched())
        self.done: list[str] = []

    def poll(self) -> None:
        self.done.append("polled")

    def press(self, key: str) -> bool:
        self.done.append(key)
        return key != "q"

    def lines(self, width: int, height: int) -> Sequence[Text]:
        self.done.append("drawn")
        return [Text("here")]

    def leave(self) -> None:
        self.done.append("left")

    def _found(self, look: Look, width: int) -> tuple[Sequence[str], View, str]:
        raise NotImplementedError


@pytest.mark.parametrize("typed", [["", "aq"], ["a", KeyboardInterrupt()]], ids=["q", "Ctrl-C"])
def test_a_screen_is_left(typed: list[str | BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is drawn before the first key, obeys each, and ends what runs in the background."""
    left = list(typed)

    def pressed(_self: object, _seconds: float) -> str:
        found = left.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(screen.Keys, "__init__", lambda self: setattr(self, "_before", None))
    monkeypatch.setattr(screen.Keys, "pressed", pressed)
    what = Once()

    screen.run_screen(what)

    assert ["polled", "drawn"] == what.done[:2]
    assert "left" == what.done[-1]
    assert "a" in what.done


def test_a_screen_that_is_killed_leaves_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM ends it as Ctrl-C does; afterwards the signal means what it did before."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(screen.Keys, "__init__", lambda self: setattr(self, "_before", None))
    monkeypatch.setattr(screen.Keys, "pressed", lambda *_: signal.raise_signal(signal.SIGTERM))
    what = Once()

    screen.run_screen(what)

    assert "left" == what.done[-1]
    assert before == signal.getsignal(signal.SIGTERM)


@pytest.mark.parametrize("command", [["top"], ["lag", "--watch"]], ids=str)
def test_into_a_pipe_it_prints_again_and_again(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst partition first, until Ctrl-C; the next look comes after the interval."""
    kafka, slept = DriverKafka(p0=(0, 5), p1=(0, 9)), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    kafka.committed = {each: CommittedOffset(0) for each in kafka.watermark}
    monkeypatch.setattr("app.start.clients", lambda _: kafka.clients)
    monkeypatch.setattr("app.start.first_records", lambda *_: FirstRecordsOf())
    monkeypatch.setattr(time, "sleep", sleep)

    arguments = [*command, "-c", str(file_of(GOOD, tmp_path)), "--interval", "7", "--json"]
    done = CliRunner().invoke(main, arguments)

    assert 0 == done.exit_code, done.output
    assert [[9, 5]] * 2 == [[at["lag"] for at in json.loads(line)["partitions"]] for line in done.stdout.splitlines()]
    assert [7, 7] == slept


@pytest.mark.parametrize("command", [["top"], ["lag", "--watch"]], ids=str)
@pytest.mark.parametrize("interval", ["nan", "inf", "1e10", "0.1"])
def test_how_often_to_look_is_refused_where_no_clock_takes_it(
    command: list[str], interval: str, tmp_path: Path
) -> None:
    """It is wrong usage, told before Kafka is asked."""
    done = CliRunner().invoke(main, [*command, "-c", str(file_of(GOOD, tmp_path)), "--interval", interval])

    assert 2 == done.exit_code
    assert "--interval" in done.stderr


class FirstRecordsOf:
    """A source whose first records have no known time."""

    def times(self, _offsets: object) -> Mapping[Partition, int | None]:
        return {}


@pytest.mark.parametrize("command", [["top"], ["lag", "--watch"]], ids=str)
def test_on_a_terminal_there_is_a_screen(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is asked of Kafka before it is drawn."""
    drawn: list[screen.Screen] = []
    for module in ("lag", "top"):
        monkeypatch.setattr(sys.modules[f"app.cli.{module}"], "run_screen", drawn.append)
    monkeypatch.setattr("app.start.clients", lambda _: DriverKafka(p0=(0, 9)).clients)

    done = CliRunner(env={"TTY_COMPATIBLE": "1"}).invoke(main, [*command, "-c", str(file_of(GOOD, tmp_path))])

    assert 0 == done.exit_code, done.output
    assert 1 == len(drawn)
