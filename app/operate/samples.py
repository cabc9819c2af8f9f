"""Checks the parser against `parser.samples`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from app.config import Sample
from parsers.contract import Parsed


def failed(samples: Sequence[Sample], parse: Callable[[pa.BinaryArray], Parsed]) -> list[str]:
    """Return a sentence for each sample for which the parser gives another result; `parse` never raises for data."""
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
        f"parser.samples[{number}]: expected {wanted}, got {found[number]}{details.get(number, '')}"
        for number, wanted in enumerate(expected)
        if wanted != found[number]
    ]


def _line(text: str | None) -> str:
    return f"the line {text!r}"
