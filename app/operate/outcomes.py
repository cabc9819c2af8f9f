"""What the parser makes of lines: of `parser.samples`, and of source records for `winnow tap`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import pyarrow as pa

from app.config import Sample
from app.operate.reading import printable, text_of
from app.records import Record
from parsers.contract import Parse, Reject


def outcomes(lines: Sequence[bytes | None], parse: Parse) -> list[bytes | Reject]:
    """Return for each line what it is cleansed to, or why it is rejected; `parse` never raises for data."""
    if not lines:
        return []
    parsed = parse(pa.array(lines, pa.binary()))
    found: dict[int, bytes | Reject] = {each.row: each for each in parsed.rejects()}
    found |= zip(parsed.rows.tolist(), parsed.values.to_pylist(), strict=True)
    return [found[row] for row in range(len(lines))]


class FailedSample(NamedTuple):
    """A sample for which the parser gives another result; the detail says more about a rejection."""

    number: int
    expected: str
    got: str
    detail: str

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


def failed_samples(samples: Sequence[Sample], parse: Parse) -> list[FailedSample]:
    found = []
    for number, outcome in enumerate(outcomes([each.line.encode() for each in samples], parse)):
        expected = _said(samples[number].output, samples[number].reason)
        if isinstance(outcome, Reject):
            got, detail = _said(None, outcome.reason), f" ({outcome.detail})"
        else:
            got, detail = _said(text_of(outcome), None), ""
        if expected != got:
            found.append(FailedSample(number, expected, got, detail))
    return found


def _said(line: str | None, reason: str | None) -> str:
    return f"the line {line!r}" if reason is None else f"the reason {reason}"


class Pair(NamedTuple):
    """A source record and its cleansed line, or why it has none."""

    record: Record
    output: bytes | None
    reason: str = ""
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        what = {"output": text_of(self.output)} if not self.reason else {"reason": self.reason, "detail": self.detail}
        place = self.record.partition.as_json() | {"offset": self.record.offset, "timestamp": self.record.timestamp}
        return place | {"input": text_of(self.record.value)} | what

    def __str__(self) -> str:
        became = f"reason  {self.reason}: {self.detail}" if self.reason else f"output  {text_of(self.output)}"
        place, value = self.record.partition.at(self.record.offset), text_of(self.record.value)
        return f"{place}\n  input   {printable(f'{value}')}\n  {printable(became)}"


def pairs(records: Sequence[Record], parse: Parse, reasons: Collection[str] = ()) -> Iterator[Pair]:
    """Yield records with their outcomes, in order: all, or those rejected for one of the reasons."""
    for record, outcome in zip(records, outcomes([each.value for each in records], parse), strict=True):
        if isinstance(outcome, Reject):
            pair = Pair(record, None, outcome.reason, outcome.detail)
        else:
            pair = Pair(record, outcome)
        if not reasons or pair.reason in reasons:
            yield pair
