"""Source records with what the configured parser makes of them, for `winnow tap`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from app.operate.reading import text_of
from app.records import Record
from parsers.contract import Parsed


@dataclass(frozen=True, slots=True)
class Pair:
    """
    A source record and its outcome.

    Args:
        output: its cleansed line; None if it is rejected.
        reason: why it is rejected; empty if it is not.
        detail: a sentence about the reason.
    """

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
        return f"{self.record.partition}@{self.record.offset}\n  input   {text_of(self.record.value)}\n  {became}"


def pairs(
    records: Sequence[Record], parse: Callable[[pa.BinaryArray], Parsed], reasons: Collection[str] = ()
) -> Iterator[Pair]:
    """
    Yield records with their outcomes, in order.

    Args:
        parse: opens the envelope and parses; never raises for data.
        reasons: yield only records rejected for one of these; empty for all records.
    """
    if not records:
        return
    parsed = parse(pa.array([each.value for each in records], pa.binary()))
    rejects = {each.row: each for each in parsed.rejects()}
    outputs = dict(zip(parsed.rows.tolist(), parsed.values.to_pylist(), strict=True))
    for row, record in enumerate(records):
        if (reject := rejects.get(row)) is None:
            pair = Pair(record, outputs[row])
        else:
            pair = Pair(record, None, reject.reason, reject.detail)
        if not reasons or pair.reason in reasons:
            yield pair
