"""
The status page in a real browser: it renders, updates, and stays readable with 1,000 partitions and on a phone.

`SCREENSHOTS=docker pytest tests/integration/test_page_in_browser.py` rewrites the pictures of docs/observability.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import axe_core_python
import pytest

from app.cures import unblock
from app.errors import OutOfRange
from app.model import FirstWaiting, Partition, Pause
from app.offsets.metadata import Counts
from app.offsets.times import Histogram, TaskTimes
from app.runtime import REAL, Runtime
from app.status.server import serve
from app.status.snapshot import About, Ending, PartitionState, PartitionStatus, Phase, Problem, RoundStatus, Snapshot
from app.status.window import Moment, Point
from tests.browser import PROGRAM, Browser

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(PROGRAM is None, reason="Debian's package chromium is not installed"),
]

TOPIC = "raw-logs"
RATE = 12_000
PAUSES = "idc-cleansing.pause"


def partition(number: int, now: float, *, lag: int, closing: int = 0) -> PartitionStatus:
    """Return a partition in which this many offsets wait, reduced by a number at each look."""
    points = tuple(
        Point(now - 5 * back, 9_000_000, 9_000_000 - lag - closing * back, 4_000_000 - RATE // 8 * 5 * back)
        for back in range(20, -1, -1)
    )
    counts = Counts(4_000_000, 3_920_000, {"srcip": 50_000, "empty": 20_000, "no_marker": 10_000}, 10**9, 10**8)
    return PartitionStatus(
        Partition(TOPIC, number),
        PartitionState.RUNNING,
        since=now - 3_000,
        committed=9_000_000 - lag,
        last_stable=9_000_000,
        high_watermark=9_000_000,
        lag=lag,
        waiting=FirstWaiting(now - 40, 604_800.0) if lag else None,
        moved=now - 1,
        points=points,
        counts=counts,
    )


def snapshot(*partitions: PartitionStatus, closing: int = 0) -> Snapshot:
    """Return a service that has worked on these partitions for an hour."""
    now, lag = REAL.wall_clock(), sum(each.lag for each in partitions)

    def at_lag(step: int) -> int:
        return lag + closing * step

    def rejected(count: int) -> dict[str, int]:
        return {"srcip": count // 80, "empty": count // 200, "no_marker": count // 400}

    busy = TaskTimes(900.0, 60.0, Histogram(1_500.0, (0, 0, 0, 0, 9_000)), Histogram(1_000.0, (0, 0, 0, 9_000)))
    hour, day = (
        tuple(
            Moment(at, count := int((at - now + 86_400) * RATE) - step % 7 * 900, 0, 0, at_lag(step), rejected(count))
            for step in range(119, -1, -1)
            for at in [now - seconds / 120 * step]
        )
        for seconds in (3_600, 86_400)
    )
    return Snapshot(
        at=now,
        alive=now,
        looked=now - 2,
        group="idc-cleansing",
        started=now - 4_000,
        phase=Phase.RUNNING,
        partitions={each.partition: each for each in partitions},
        round=RoundStatus(7, now - 250, 4, 4, len(partitions), 1_000),
        ended=(
            RoundStatus(5, now - 1_450, 4, 4, len(partitions), 900, ending=Ending.DONE, seconds=600.0),
            RoundStatus(
                6, now - 850, 4, 4, len(partitions), 900, ending=Ending.REBALANCE, reason="uneven work", seconds=600.0
            ),
        ),
        totals=sum((each.counts for each in partitions), Counts()),
        tasks=dict.fromkeys(range(4), busy),
        hour=hour,
        day=day,
    )


def quiet(count: int = 8) -> Snapshot:
    now = REAL.wall_clock()
    return snapshot(*(partition(number, now, lag=0) for number in range(count)))


def catching_up() -> Snapshot:
    now = REAL.wall_clock()
    return snapshot(*(partition(n, now, lag=150_000 + 9_000 * n, closing=9_000) for n in range(8)), closing=40_000)


def blocked() -> Snapshot:
    now = REAL.wall_clock()
    where = Partition(TOPIC, 3)
    error = OutOfRange(where, "offsets 5 to 9 were deleted before they were read", 5, unblock(where))
    waits = partition(3, now, lag=40_000)
    waits = replace(waits, state=PartitionState.BLOCKED, problem=Problem.of(error, now - 300))
    return snapshot(*(waits if n == 3 else partition(n, now, lag=0) for n in range(8)))


def away() -> Snapshot:
    """Kafka has not responded for 11 hours, while the partitions were catching up: the words stay for half an hour."""
    now = REAL.wall_clock()
    asked = f"while reading the offsets of group {PAUSES!r}: Local: Timed out"
    outage = Problem(f"Kafka is not responding {asked}", "", now - 11 * 3_600)
    about = About(guarantee="exactly-once", sources=(TOPIC,), sink="clean-logs", dead_letters="raw-logs.dlq")
    return replace(catching_up(), outage=outage, looked=now - 11 * 3_600 - 2, about=about)


class Shown:
    """What the server shows. A test may change it."""

    def __init__(self, first: Snapshot) -> None:
        self.now = first


@contextmanager
def page(
    shown: Shown, folder: Path, width: int = 1100, height: int = 800, *, dark: bool = False
) -> Iterator[tuple[Browser, AbstractContextManager[str]]]:
    # A browser may take so long to start that the driver would count as dead.
    clock = Runtime(wall_clock=lambda: shown.now.at)
    server = serve("127.0.0.1", 0, lambda: shown.now, clock)
    with (
        server as url,
        Browser(folder / "profile", width, height, dark=dark) as browser,
    ):
        browser.open(url)
        browser.until("last !== null")
        yield browser, server


def picture(browser: Browser, name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        browser.screenshot(Path(folder) / f"status-{name}.png")


STATE = "document.getElementById('state')"
ROWS = "document.querySelectorAll('#partitions tr').length"
OLD = "document.getElementById('figures').classList.contains('old')"
RATES = "[...document.querySelectorAll('#partitions tr')].map(each => each.children[4].textContent)"
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


def test_it_renders_and_updates(tmp_path: Path) -> None:
    """The page shows state, partitions, charts, dead letters, rounds and tasks, and updates without a reload."""
    shown = Shown(quiet())
    with page(shown, tmp_path) as (browser, server):
        browser.value("window.mark = 'the same page'")
        assert "good" == browser.value(f"{STATE}.className")
        assert "running · 8 ok · lag 0" == browser.value(f"{STATE}.textContent")
        assert 8 == browser.value(ROWS)
        assert ["srcip", "empty", "no_marker"] == browser.value(
            "[...document.querySelectorAll('#dead tr')].map(each => each.firstChild.textContent)"
        )
        assert 1 + 1 + 3 == browser.value("document.querySelectorAll('svg polyline').length")
        assert 3 == browser.value("document.querySelectorAll('#rounds tr').length")
        assert ["0", "26 %", "43 %", "29 %", "1.7 %"] == browser.value(
            "[...document.querySelector('#tasks tr').children].map(each => each.textContent)"
        )
        picture(browser, "quiet")

        shown.now = catching_up()
        browser.until(f"{STATE}.className === 'busy'")
        assert "left" in browser.value("document.querySelector('#partitions .catching-up').textContent")
        picture(browser, "catching-up")

        shown.now = blocked()
        browser.until(f"{STATE}.className === 'bad'")
        (before, command, after) = browser.value(
            "[...document.querySelector('.problem p').children].map(each => (each.firstElementChild ?? each).textContent)"
        )
        assert ("set out.of.range", " (or --to-latest") == (before[:16], after[:16])
        assert "winnow offsets reset -c winnow.yaml --topic raw-logs:3 --to-earliest" == command
        picture(browser, "blocked")
        browser.value("document.querySelector('.problem button').click()")
        browser.until("document.querySelector('.problem button').textContent !== 'copy'")
        assert "raw-logs-3" == browser.value("document.querySelector('#partitions th').textContent")
        assert "blocked · idc-cleansing · Winnow" == browser.value("document.title")
        shown.now = replace(quiet(), paused=Pause(round((REAL.wall_clock() - 5_400) * 1000), "ops-1"))
        browser.until(f"{STATE}.textContent.includes('paused from ops-1 · for 1.5 h, since ')")
        assert "winnow resume" in browser.value("document.getElementById('advice').textContent")

        assert "the same page" == browser.value("window.mark")
        assert [] == browser.errors
        server.__exit__(None, None, None)
        browser.until(f"{STATE}.textContent.startsWith('the driver does not respond · for ')")
        assert browser.value(OLD)


def test_an_outage_is_said_once(tmp_path: Path) -> None:
    """It says since when Kafka is away, what happens and what is safe; what nobody knows is neither green nor a rate."""
    shown = Shown(away())
    with page(shown, tmp_path) as (browser, _):
        text = browser.value(
            "[...document.querySelectorAll('header p:not(.unseen), main')].map(each => each.innerText).join('\\n')"
        )
        assert browser.value(f"{STATE}.textContent").startswith("Kafka is not responding · for 11 h, since ")
        assert (1, 1) == (text.count("is not responding"), text.count(PAUSES))
        assert "try again every few seconds" in text
        assert "No record is lost or written twice" in text
        assert browser.value(OLD)
        assert {"\u2013"} == set(browser.value(RATES))
        assert 0 == browser.value("document.querySelectorAll('#partitions .ok, .problem').length")
        picture(browser, "outage")

        # With a long `round.interval`, figures of this age are the latest.
        shown.now = replace(catching_up(), outage=None, looked=REAL.wall_clock() - 3_000)
        browser.until(f"{STATE}.className === 'busy'")
        assert not browser.value(OLD)
        assert [] == browser.errors


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_a_thousand_partitions(dark: bool, tmp_path: Path) -> None:
    """Nothing is wider than the screen. The worst partitions come first, the rest on demand, and a filter finds one."""
    with page(Shown(quiet(1_000)), tmp_path, 390, 844, dark=dark) as (browser, _):
        assert browser.value(FITS)
        assert 100 == browser.value(ROWS)
        if not dark:
            picture(browser, "phone")
        browser.value("document.getElementById('all').click()")
        assert 1_000 == browser.value(ROWS)
        browser.value("at('filter').value = 'logs-777'; at('filter').dispatchEvent(new Event('input'))")
        assert 1 == browser.value(ROWS)
        assert [] == browser.errors
        grounds = {False: "rgb(251, 250, 247)", True: "rgb(21, 23, 26)"}
        assert grounds[dark] == browser.value("getComputedStyle(document.body).backgroundColor")


def many() -> Snapshot:
    """Of 1,000 partitions, number 777 is blocked."""
    healthy, where = quiet(1_000), Partition(TOPIC, 777)
    problem = Problem("the partition has no leader", "bring its broker back", REAL.wall_clock() - 60, where)
    stuck = replace(healthy.partitions[where], state=PartitionState.BLOCKED, problem=problem)
    return replace(healthy, partitions={**healthy.partitions, where: stuck})


CHOSEN = "document.querySelector('#map [aria-selected=true]').getAttribute('aria-label')"


def test_a_map_of_a_thousand_partitions(tmp_path: Path) -> None:
    """It shows them all above the table, the worst one chosen. One tab stop: arrow keys choose, Enter filters."""
    shown = Shown(many())
    with page(shown, tmp_path) as (browser, _):
        assert [1_000, 1, 999] == [
            browser.value(f"document.querySelectorAll('#map {each}').length") for each in ("span", ".blocked", ".ok")
        ]
        assert "raw-logs-777: blocked, lag 0" == browser.value(CHOSEN)
        assert "\u00d7 blocked · ok" == browser.value("document.getElementById('legend').textContent")
        picture(browser, "map")

        browser.value("document.getElementById('map').focus()")
        columns = browser.value("getComputedStyle(at('map')).gridTemplateColumns.split(' ').length")
        for key, number in (
            ("ArrowRight", 778),
            ("ArrowDown", 778 + columns),
            ("Home", 0),
            ("ArrowLeft", 0),
            ("End", 999),
        ):
            browser.value(f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}))")
            assert f"raw-logs-{number}: ok, lag 0" == browser.value(CHOSEN)
        browser.value("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))")
        assert (1, "raw-logs-999") == (
            browser.value(ROWS),
            browser.value("document.querySelector('#partitions th').textContent"),
        )

        shown.now = quiet(8)
        browser.until("document.getElementById('heat').hidden")
        assert [] == browser.errors


AXE = Path(axe_core_python.__file__).with_name("axe.min.js")
SCENES = {"quiet": quiet, "blocked": blocked, "outage": away, "map": many}


@pytest.mark.parametrize("width", [1_100, 640, 390])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("scene", SCENES)
def test_nothing_bars_anybody(scene: str, dark: bool, width: int, tmp_path: Path) -> None:
    """axe-core finds nothing: names, roles, contrast, and a way for the keyboard to all that scrolls."""
    with page(Shown(SCENES[scene]()), tmp_path, width, 844, dark=dark) as (browser, _):
        browser.value(AXE.read_text())
        found = browser.value("axe.run().then(({violations}) => violations.map(({id, nodes}) => [id, nodes[0].html]))")

        assert [] == found
        assert browser.value(FITS)
