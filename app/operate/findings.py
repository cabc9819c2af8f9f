"""The findings of `winnow audit`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from app.headers import cut_from
from app.operate.dead_letters import Letter
from app.operate.expected import Origin
from app.operate.reading import text_of
from app.records import Fate, OutgoingRecord, Record

BY_THE_TOPICS = ("too_large", "refused", "parser_error")
"""Reasons that the parser alone does not decide: an expected line may be a dead letter for one of them."""
SHOWN = 200
"""How many characters of a line are shown."""


class Defect(StrEnum):
    """What can be wrong."""

    LOST = "lost"
    DOUBLED = "doubled"
    CHANGED = "changed"
    OUT_OF_ORDER = "out of order"
    BOTH = "both"
    UNEXPLAINED = "unexplained"


class Finding(NamedTuple):
    """Something that is wrong."""

    kind: Defect
    origin: Origin | None
    """The source record; None if no record explains what was found."""
    found_at: str
    """The place in the sink or the dead letters; empty if nothing was found."""
    detail: str

    def as_json(self) -> dict[str, Any]:
        (topic, number), offset = self.origin or ((None, None), None)
        return {
            "kind": self.kind.value,
            "topic": topic,
            "partition": number,
            "offset": offset,
            "found_at": self.found_at or None,
            "detail": self.detail,
        }


def counted(findings: Iterable[Finding]) -> dict[str, int]:
    counts = Counter(each.kind for each in findings)
    return {kind.value.replace(" ", "_"): counts[kind] for kind in Defect}


def str_of(record: Record) -> str:
    return record.partition.at(record.offset)


def shown(value: bytes | None) -> str:
    text = text_of(value) or ""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def again(origin: Origin, record: Record) -> Finding:
    """Return the finding of a second line of the same record."""
    return Finding(Defect.DOUBLED, origin, str_of(record), f"{shown(record.value)} appears again")


def missing(fate: Fate) -> Finding:
    origin, line = Origin(fate.record.partition, fate.record.offset), shown(fate.written.value)
    detail = f"no dead letter, expected one for {fate.reason}" if fate.reason else f"the line {line} is not in the sink"
    return Finding(Defect.LOST, origin, "", detail)


def other_line(fate: Fate, line: Record) -> Finding:
    written, origin = fate.written, Origin(fate.record.partition, fate.record.offset)
    if fate.filtered:
        detail = f"dropped now by the filter {fate.filtered}, found {shown(line.value)}"
    elif fate.reason:
        detail = f"rejected now for {fate.reason}, found {shown(line.value)}"
    elif written.value != line.value:
        detail = f"expected {shown(written.value)}, found {shown(line.value)}"
    else:
        expected = f"key {shown(written.key)} and timestamp {written.timestamp} in {fate.to}"
        detail = f"expected {expected}, found key {shown(line.key)} and timestamp {line.timestamp} in {line.partition}"
    return Finding(Defect.CHANGED, origin, str_of(line), detail)


def _said(fate: Fate) -> str:
    if fate.filtered:
        return f"dropped by the filter {fate.filtered}"
    return f"for {fate.reason}" if fate.reason else "accepted"


def _content(record: Record | OutgoingRecord) -> tuple[bytes | None, bytes | None]:
    return record.key, record.value


def _is_cut(letter: Letter, record: Record) -> bool:
    """Tell whether a dead letter is what was left of this record when it was cut, as its message says."""
    key, value = _content(letter.record)
    begins = (record.value or b"").startswith(value or b"") and key in (record.key, None)
    return begins and letter.detail.endswith(cut_from(record.value))


def other_letter(fate: Fate, letter: Letter) -> Iterator[Finding]:
    """Yield the finding of an unexpected dead letter; nothing if a topic's limits may explain it."""
    written, origin = fate.written, Origin(fate.record.partition, fate.record.offset)
    if letter.reason != fate.reason and letter.reason not in BY_THE_TOPICS:
        detail = f"rejected then for {letter.reason}, now {_said(fate)}"
        yield Finding(Defect.CHANGED, origin, str_of(letter.record), detail)
    elif fate.reason and not _is_cut(letter, fate.record) and _content(letter.record) != _content(written):
        detail = f"expected {shown(written.value)}, found {shown(letter.record.value)}"
        yield Finding(Defect.CHANGED, origin, str_of(letter.record), detail)
