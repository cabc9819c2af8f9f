"""Source records with what the configured parser makes of them, for `winnow tap`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from app.operate.reading import printable, text_of
from app.records import Record
from parsers.contract import Parse


@dataclass(frozen=True, slots=True)
class Pair:
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
    if not records:
        return
    parsed = parse(pa.array([each.value for each in records], pa.binary()))
    values = zip(parsed.rows.tolist(), parsed.values.to_pylist(), strict=True)
    found = {row: Pair(records[row], value) for row, value in values}
    found |= {each.row: Pair(records[each.row], None, each.reason, each.detail) for each in parsed.rejects()}
    for _, pair in sorted(found.items()):
        if not reasons or pair.reason in reasons:
            yield pair
