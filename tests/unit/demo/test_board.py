"""The demo's board: the service's speed per second, not per refresh, and plain lines on a pipe."""

from __future__ import annotations

import io

from rich.console import Console

from app.demo.board import Board, Speed
from app.demo.verify import NOTHING_SEEN, VerificationResult

SEEN = VerificationResult(60, 2, {"srcip": 2}, {"lost": 38})


def shown(done: int, seen: VerificationResult, *, ended: bool, terminal: bool) -> str:
    """Return the output of a board."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=120)
    with Board(console, 100, "raw ▶ clean") as board:
        board.show(done, seen, ended=ended)
    return output.getvalue()


def test_speed_is_of_the_last_second() -> None:
    """Refreshes in quick succession do not inflate the speed, and the fastest second is remembered."""
    speed = Speed()
    for at, done in ((0, 0), (0.5, 500), (0.6, 5_000), (1.0, 5_000), (2.0, 6_000)):
        speed.add(done, at)

    assert 1_000 == speed.now
    assert 5_000 == speed.fastest


def test_no_speed_before_a_second_has_passed() -> None:
    """A single refresh does not give a speed."""
    speed = Speed()
    speed.add(10, 0.0)
    speed.add(900, 0.5)

    assert 0 == speed.now == speed.fastest


def test_a_pipe_gets_lines() -> None:
    """Lines on a pipe show the progress of service and verification, without control characters."""
    text = shown(80, SEEN, ended=False, terminal=False)

    assert text.startswith("  starting Spark\n  cleansed 80, lag 20, fastest")
    assert text.endswith("verified 62\n")
    assert "\x1b" not in text


def test_no_table_of_zeros() -> None:
    """Until the first commit, a terminal shows that Spark is starting."""
    text = shown(0, NOTHING_SEEN, ended=False, terminal=True)

    assert "starting Spark" in text
    assert "lag" not in text


def test_a_terminal_gets_a_table() -> None:
    """The table has the service's columns, the verification's columns, and the reasons."""
    text = shown(100, SEEN, ended=True, terminal=True)

    assert all(word in text for word in ("cleansed", "lag", "fastest", "verified", "srcip", "verifying"))
