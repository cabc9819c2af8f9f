"""Each command's table fits a terminal, and no number and no place in it is cut."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from app.cli.layout import View, fitted
from tests.fakes.views import DEAD, PAUSE, SINK, TOPIC, views

WIDTH = 80
EACH = {f"{name} {count}": view for count in (6, 256) for name, view in views(count).items()}
NEEDED = {
    "lag": {"TOPIC", "PARTITION", "LAG", "LAG-SECONDS"},
    "top": {"TOPIC", "PARTITION", "LAG", "LAG-SECONDS", "RECORDS/S"},
    "dlq ls": {"PLACE", "TIME", "REASON", "SOURCE"},
    "audit": {"WHAT", "TOPIC", "PARTITION", "OFFSET", "FOUND-AT", "DETAIL"},
    "offsets show": {"TOPIC", "PARTITION", "CURRENT-OFFSET", "DEAD-LETTERS"},
    "offsets reset": {"TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", "CHANGE", "NOTE"},
    "replay": {"TOPIC", "PARTITION", "IN", "OUT", "DEAD-LETTERS", "PROBLEM"},
    "transactions ls": {"TOPIC", "PARTITION", "STATE", "AGE-SECONDS"},
}


@pytest.mark.parametrize("name", EACH)
def test_a_table_fits_a_terminal(name: str) -> None:
    """No line is longer, nothing is cut, and every word of a row stands whole on one line."""
    view = EACH[name]

    page = fitted(view, WIDTH)

    assert max(cell_len(line.plain) for line in page.lines) <= WIDTH
    assert "…" not in "".join(line.plain for line in page.lines)
    heads = {name.lstrip("#?") for name in view.columns} - set(page.gone)
    assert heads >= NEEDED.get(name.rpartition(" ")[0], set())
    for row, lines in zip(view.rows, page.rows, strict=True):
        words = {word for line in lines for word in line.plain.split()}
        numbers = [
            cell
            for head, cell in zip(view.columns, row, strict=True)
            if head[0] == "#" and head[1:] in heads and cell is not None
        ]
        assert {f"{each:.1f}" if isinstance(each, float) else str(each) for each in numbers} <= words
        assert set(places(row)) <= {word.rstrip(":") for word in words}


@pytest.mark.parametrize("command", ["lag 6", "top 6"])
def test_a_pause_is_told_below_the_table(command: str) -> None:
    assert EACH[command].footer.endswith(f"; {PAUSE}")


def places(row: object) -> list[str]:
    return re.findall(rf"(?:{TOPIC}|{SINK}|{DEAD})-\d+@\d+|\b\d+@\d+", str(row))


def test_spare_columns_go_in_their_order() -> None:
    """Only as many as must, and the page says which."""
    view = View(("TOPIC", "#A", "#B", "#LAG"), [("raw", 10**9, 10**9, 10**9)], {}, spare=("B", "A"))

    assert [[], ["B"], ["B", "A"], ["B", "A"]] == [fitted(view, width).gone for width in (41, 38, 26, 10)]
    assert "not shown in 26 columns: B, A" == " ".join(line.plain for line in fitted(view, 26).foot)


def test_prose_stands_beside_its_row_or_below() -> None:
    """A column of its own comes first, then the end of the row's line, then lines of their own."""
    view = View(("#OFFSET", "?PLACE", "?NOTE"), [(1, "raw-0@7", "late"), (2, "raw-0@8", "its broker is far away")], {})

    assert ["     1  raw-0@7  late", "     2  raw-0@8  its broker is far away"] == rows(view, 40)
    assert ["     1  raw-0@7  late", "     2  raw-0@8", "  its broker is far", "  away"] == rows(view, 21)
    assert ["     1", "  raw-0@7", "  late"] == rows(view, 10)[:3]


def test_prose_that_a_row_lacks_takes_no_room() -> None:
    """Another row has a place, this one has none: its note begins where the place would."""
    view = View(("#OFFSET", "?PLACE", "?NOTE"), [(1, "", "late"), (2, "raw-0@8", "its broker is away")], {})

    assert ["     1", "  late"] == rows(view, 10)[:2]


def rows(view: View, width: int) -> list[str]:
    return [line.plain for row in fitted(view, width).rows for line in row]


def test_what_a_record_holds_cannot_move_the_cursor() -> None:
    """A dead letter's value is shown on its line, with what is not printable escaped."""
    assert [r"value  a\tb\x1b[2J\nc"] == rows(View(("WHAT", "?VALUE"), [("value", "a\tb\x1b[2J\nc")], {}), 80)


def test_a_page_in_a_height() -> None:
    """It keeps its head and its foot, and says how many rows it shows."""
    page = fitted(View(("#LAG", "?NOTE"), [(n, "it is as late as can be") for n in range(9)], {}, footer="lag 36"), 25)

    assert page.lines == page.within(20)
    assert ["LAG  NOTE", "  0", "  it is as late as can be", "the first 1 of 9", "lag 36"] == [
        line.plain for line in page.within(6)
    ]
    assert all(len(page.within(height)) <= height for height in range(3, 25))
