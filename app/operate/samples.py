"""Checks the parser against `parser.samples`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import pyarrow as pa

from app.config import Sample
from parsers.contract import Parse


class FailedSample(NamedTuple):
    """A sample for which the parser gives another result; the detail says more about a rejection."""

    number: int
    expected: str
    got: str
    detail: str = ""

    def __str__(self) -> str:
        return f"parser.samples[{self.number}]: expected {self.expected}, got {self.got}{self.detail}"

    @property
    def difference(self) -> list[str]:
        """Both results in lines below each other, with a mark below their first difference."""
        pairs = zip(self.expected, self.got, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return [
            f"parser.samples[{self.number}] has another result",
            f"expected  {self.expected}",
            f"got       {self.got}{self.detail}",
            f"          {' ' * same}^",
        ]


def failed(samples: Sequence[Sample], parse: Parse) -> list[FailedSample]:
    """Return each sample for which the parser gives another result; `parse` never raises for data."""
    if not samples:
        return []
    parsed = parse(pa.array([each.line.encode() for each in samples], pa.binary()))
    found = {
        row: _line((value or b"").decode(errors="backslashreplace"))
        for row, value in zip(parsed.rows.tolist(), parsed.values.to_pylist(), strict=True)
    }
    found |= {each.row: f"the reason {each.reason}" for each in parsed.rejects()}
    details = {each.row: f" ({each.detail})" for each in parsed.rejects()}
    expected = [_line(each.output) if each.reason is None else f"the reason {each.reason}" for each in samples]
    return [
        FailedSample(number, wanted, found[number], details.get(number, ""))
        for number, wanted in enumerate(expected)
        if wanted != found[number]
    ]


def _line(text: str | None) -> str:
    return f"the line {text!r}"
