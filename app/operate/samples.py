"""Checks the parser against `parser.samples`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from app.config import Sample
from parsers.contract import Parsed


@dataclass(frozen=True, slots=True)
class FailedSample:
    """A sample for which the parser gives another result; `number` is its index in the list."""

    number: int
    expected: str
    found: str

    def __str__(self) -> str:
        return f"parser.samples[{self.number}]: expected {self.expected}, got {self.found}"


def failed(samples: Sequence[Sample], parse: Callable[[pa.BinaryArray], Parsed]) -> list[FailedSample]:
    """Return the samples for which the parser gives another result; `parse` never raises for data."""
    if not samples:
        return []
    parsed = parse(pa.array([each.line.encode() for each in samples], pa.binary()))
    found: dict[int, tuple[str | None, str | None, str]] = {
        row: ((value or b"").decode(errors="backslashreplace"), None, "")
        for row, value in zip(parsed.rows.tolist(), parsed.values.to_pylist(), strict=True)
    }
    found |= {each.row: (None, each.reason, f" ({each.detail})") for each in parsed.rejects()}
    return [
        FailedSample(number, _said(sample.output, sample.reason), _said(output, reason) + detail)
        for number, sample in enumerate(samples)
        for output, reason, detail in [found[number]]
        if (output, reason) != (sample.output, sample.reason)
    ]


def _said(output: str | None, reason: str | None) -> str:
    return f"the line {output!r}" if reason is None else f"the reason {reason}"
