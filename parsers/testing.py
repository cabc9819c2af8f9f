"""
Tests of the contract, for any parser. They need pytest and hypothesis.

    class TestMine(ParserContract):
        def make_parser(self):
            return Mine()

        good_lines = (b"a line that it must accept",)  # optional; makes the tests more thorough
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsers.contract import Parsed, Parser, breaches

Outcome = bytes | tuple[str, str]
"""The result for one line: its cleansed value, or its reason and detail."""

# Each test is inherited by several classes on purpose, which this health check would report.
_INHERITED = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.differing_executors])
_ANY = st.lists(st.none() | st.binary(max_size=64), max_size=8)


def batch(lines: Sequence[bytes | None]) -> pa.BinaryArray:
    """Return a batch of these values; `None` is a null."""
    return pa.array(lines, pa.binary())


def outcomes(parsed: Parsed, count: int) -> list[Outcome]:
    """Return the result for each of the `count` rows of a batch. Fail if a row has none or two."""
    values = cast("list[bytes]", parsed.values.to_pylist())
    found: dict[int, Outcome] = dict(zip(parsed.rows.tolist(), values, strict=True))
    assert len(found) == len(parsed.rows), "a row has two values"
    for row, reason, detail in parsed.rejects():
        assert row not in found, f"row {row} has more than one outcome"
        found[row] = (reason, detail)
    assert sorted(found) == list(range(count)), "the rows of the outcome are not the rows of the batch"
    return [found[row] for row in range(count)]


class ParserContract:
    """The tests that every parser must pass. Subclass it and define `make_parser`."""

    good_lines: Sequence[bytes] = ()
    """Lines that the parser must accept."""

    def make_parser(self) -> Parser:
        raise NotImplementedError

    def lines(self, drawn: Sequence[bytes | None]) -> list[bytes | None]:
        """Return the drawn values mixed with good lines, some of them damaged."""
        mixed: list[bytes | None] = []
        for number, value in enumerate(drawn):
            mixed.append(value)
            if self.good_lines:
                good = self.good_lines[number % len(self.good_lines)]
                cut = len(value or b"") * 3 % (len(good) + 1)
                mixed += (good, good[:cut] + (value or b"") + good[cut:])
        return mixed

    def test_is_a_parser(self) -> None:
        """The object has the method `parse`."""
        assert isinstance(self.make_parser(), Parser)

    @settings(_INHERITED, max_examples=40)
    @given(drawn=_ANY)
    def test_every_row_has_one_outcome(self, drawn: list[bytes | None]) -> None:
        """No bytes make the parser raise, and its result passes every check of the service."""
        lines = self.lines(drawn)

        found = list(breaches(self.make_parser().parse(batch(lines)), len(lines)))

        assert not found, found

    @settings(_INHERITED, max_examples=40)
    @given(drawn=_ANY)
    def test_neighbours_do_not_matter(self, drawn: list[bytes | None]) -> None:
        """A row has the same result alone and among other rows."""
        parser, lines = self.make_parser(), self.lines(drawn)

        alone = [outcomes(parser.parse(batch([line])), 1)[0] for line in lines]

        assert alone == outcomes(parser.parse(batch(lines)), len(lines))

    @settings(_INHERITED, max_examples=20)
    @given(drawn=_ANY, skipped=st.integers(0, 8))
    def test_a_slice_is_a_batch(self, drawn: list[bytes | None], skipped: int) -> None:
        """A slice of a longer array is parsed like an array of the same values."""
        parser, lines = self.make_parser(), self.lines(drawn)
        part = lines[skipped : skipped + 9]

        sliced = batch([b"x", None, *lines]).slice(2).slice(skipped, len(part))

        assert outcomes(parser.parse(batch(part)), len(part)) == outcomes(parser.parse(sliced), len(part))

    def test_no_lines(self) -> None:
        """An empty batch has an empty result."""
        assert outcomes(self.make_parser().parse(batch([])), 0) == []

    def test_null_and_empty_are_rejects(self) -> None:
        """A record without a value, or with an empty one, is rejected with a reason."""
        rejects = list(self.make_parser().parse(batch([None, b""])).rejects())

        assert [reject.row for reject in rejects] == [0, 1]
        assert all(reject.reason for reject in rejects)

    def test_good_lines_are_accepted(self) -> None:
        """The parser accepts every line of `good_lines`."""
        parsed = self.make_parser().parse(batch(self.good_lines))

        assert not len(parsed.reject_rows), f"rejected: {list(parsed.rejects())}"
