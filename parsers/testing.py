"""
What a parser promises, as tests; needs pytest and hypothesis.

    class TestMine(ParserContract):
        def make_parser(self):
            return Mine()

`good_lines` makes the tests sharper: lines that the parser must accept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsers.contract import Parsed, Parser

Outcome = bytes | tuple[str, str]
"""What became of one line: its cleansed value, or its reason and detail."""

# Each parser inherits the tests; what Hypothesis warns of, one test run by several classes, is meant.
_INHERITED = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.differing_executors])
_ANY = st.lists(st.none() | st.binary(max_size=64), max_size=8)


def batch(lines: Sequence[bytes | None]) -> pa.BinaryArray:
    """Make a batch of these values."""
    return pa.array(lines, pa.binary())


def outcomes(parsed: Parsed, count: int) -> list[Outcome]:
    """List what became of each of the `count` rows, or fail where a row has no outcome, or two."""
    values = cast("list[bytes]", parsed.values.to_pylist())
    found: dict[int, Outcome] = dict(zip(parsed.rows.tolist(), values, strict=True))
    assert len(found) == len(parsed.rows), "a row has two values"
    for row, reason, detail in parsed.rejects():
        assert row not in found, f"row {row} has more than one outcome"
        found[row] = (reason, detail)
    assert sorted(found) == list(range(count)), "the rows of the outcome are not the rows of the batch"
    return [found[row] for row in range(count)]


class ParserContract:
    """The promises that every parser makes; subclass it and say how yours is made."""

    good_lines: Sequence[bytes] = ()
    """Lines that the parser must accept."""

    def make_parser(self) -> Parser:
        """Make the parser to be tested."""
        raise NotImplementedError

    def lines(self, drawn: Sequence[bytes | None]) -> list[bytes | None]:
        """Mix drawn values with good lines, whole and broken."""
        return [mixed for pair in self._pairs(drawn) for mixed in pair]

    def _pairs(self, drawn: Sequence[bytes | None]) -> Iterator[tuple[bytes | None, ...]]:
        for number, value in enumerate(drawn):
            if not self.good_lines:
                yield (value,)
                continue
            good = self.good_lines[number % len(self.good_lines)]
            cut = len(value or b"") * 3 % (len(good) + 1)
            yield value, good, good[:cut] + (value or b"") + good[cut:]

    def test_is_a_parser(self) -> None:
        """The object has the method that makes it a parser."""
        assert isinstance(self.make_parser(), Parser)

    @settings(_INHERITED, max_examples=40)
    @given(drawn=_ANY)
    def test_every_row_has_one_outcome(self, drawn: list[bytes | None]) -> None:
        """Whatever the bytes, nothing is raised, and each row is a value or a reject, in ascending order."""
        lines = self.lines(drawn)

        parsed = self.make_parser().parse(batch(lines))

        outcomes(parsed, len(lines))
        assert (np.diff(parsed.rows) > 0).all()
        assert (np.diff(parsed.reject_rows) > 0).all()

    def test_types(self) -> None:
        """The outcome has the types of the contract, and is well formed."""
        parsed = self.make_parser().parse(batch([None, b"", b"\xff", *self.good_lines]))

        parsed.values.validate(full=True)
        assert (pa.binary(), pa.string(), pa.string()) == (
            parsed.values.type,
            parsed.reasons.type,
            parsed.details.type,
        )
        assert (np.dtype(np.int32), np.dtype(np.int32)) == (parsed.rows.dtype, parsed.reject_rows.dtype)
        assert parsed.values.null_count == 0

    @settings(_INHERITED, max_examples=40)
    @given(drawn=_ANY)
    def test_neighbours_do_not_matter(self, drawn: list[bytes | None]) -> None:
        """A row's outcome is the same alone and in any company."""
        parser, lines = self.make_parser(), self.lines(drawn)

        alone = [outcomes(parser.parse(batch([line])), 1)[0] for line in lines]

        assert alone == outcomes(parser.parse(batch(lines)), len(lines))

    @settings(_INHERITED, max_examples=20)
    @given(drawn=_ANY, skipped=st.integers(0, 8))
    def test_a_slice_is_a_batch(self, drawn: list[bytes | None], skipped: int) -> None:
        """A slice of a longer array is parsed like an array of its own."""
        parser, lines = self.make_parser(), self.lines(drawn)
        part = lines[skipped : skipped + 9]

        sliced = batch([b"x", None, *lines]).slice(2).slice(skipped, len(part))

        assert outcomes(parser.parse(batch(part)), len(part)) == outcomes(parser.parse(sliced), len(part))

    def test_no_lines(self) -> None:
        """An empty batch has an empty outcome."""
        assert outcomes(self.make_parser().parse(batch([])), 0) == []

    def test_null_and_empty_are_rejects(self) -> None:
        """A record without a value, and one whose value is empty, are rejected with a reason."""
        rejects = list(self.make_parser().parse(batch([None, b""])).rejects())

        assert [reject.row for reject in rejects] == [0, 1]
        assert all(reject.reason for reject in rejects)

    def test_good_lines_are_accepted(self) -> None:
        """Every line that must be accepted is."""
        parsed = self.make_parser().parse(batch(self.good_lines))

        assert not len(parsed.reject_rows), f"rejected: {list(parsed.rejects())}"
