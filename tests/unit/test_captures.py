"""docs/screens.md shows what commands print in a terminal."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.captures import COLUMNS, COMMANDS, HEAD, LINES, NOT_CAPTURED, captured
from tests.fakes.views import views
from tests.support.commands import LEAVES
from tests.support.docs import ROOT, fenced

TEXT = (ROOT / "docs/screens.md").read_text()
SHOWN = dict(zip(COMMANDS, fenced(TEXT, "text"), strict=True))


def test_the_page_is_of_this_script() -> None:
    """Run `make captures` after a change of what is captured."""
    assert TEXT.startswith(HEAD)
    assert list(COMMANDS) == re.findall(r"^## `(.*)`$", TEXT, re.MULTILINE)
    assert not re.search(r"/tmp/|127\.0\.0\.1:(?!8090)\d+", TEXT)


def test_each_command_is_shown() -> None:
    """But those that a script cannot show, and why."""
    shown = {name for name in LEAVES if any(f"{command} ".startswith(f"{name} ") for command in COMMANDS)}

    assert LEAVES.keys() == shown | NOT_CAPTURED.keys()
    assert not shown & NOT_CAPTURED.keys()


@pytest.mark.parametrize(("name", "view"), [(name, view) for name, view in views(1).items() if " --" not in name])
def test_the_tables_have_their_columns(name: str, view: object) -> None:
    """Run `make captures` after a change of a table."""
    shown = next((text for command, text in SHOWN.items() if f"{command} ".startswith(f"winnow {name} ")), None)
    if shown is None or name == "audit":  # that finds nothing, and shows no table
        return
    if name == "transactions ls" and shown.rstrip().endswith(
        ": 0 open transactions"
    ):  # a short one may fall between two
        return
    heads = {each.lstrip("#?") for each in view.columns}  # type: ignore[attr-defined]  # a View
    table = [line.split() for line in shown.splitlines() if set(line.split()) <= heads and line]

    assert table, f"{sorted(heads)} in\n{shown}"
    assert max(map(cell_len, shown.splitlines())) <= COLUMNS


@pytest.mark.parametrize(
    ("program", "quit_after", "shown"),
    [
        ("import os; print(*os.get_terminal_size(), 'x ' )", None, f"{COLUMNS} {LINES} x"),
        ("print('\\x1b[1mbold\\x1b[0m'); import sys; print('log', file=sys.stderr)", None, "bold"),
        (
            "import os, tty; tty.setcbreak(0); print('\\x1b[Hold\\x1b[Hnew', flush=True); os.read(0, 1); print('\\x1b[?1049lx')",
            0.0,
            "new",
        ),
    ],
    ids=["its size", "no colours", "a screen"],
)
def test_a_capture(program: str, quit_after: float | None, shown: str, tmp_path: Path) -> None:
    """As a person sees it: of a screen, the last frame before `q`."""
    assert shown == captured([sys.executable, "-c", program], tmp_path, quit_after=quit_after)


def test_a_capture_with_messages(tmp_path: Path) -> None:
    """A command that says what it found on stderr shows nothing without it."""
    program = "import sys; print('said', file=sys.stderr, flush=True); print(sys.stderr.isatty())"

    assert "said\nTrue" == captured([sys.executable, "-c", program], tmp_path, with_messages=True)
