"""What `winnow audit` finds: kinds of what can be wrong, and each finding with its place and its detail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.operate.expected import Origin
from app.operate.letters import Letter
from app.operate.pairs import text_of
from app.records import Fate, Record

BY_THE_TOPICS = ("too_large", "refused", "parser_error")
"""Reasons that the parser alone does not decide: a line that is expected may be a dead letter for one of them."""
SHOWN = 200
"""How much of a line is shown."""


class Kind(StrEnum):
    """What can be wrong."""

    LOST = "lost"
    DOUBLED = "doubled"
    CHANGED = "changed"
    OUT_OF_ORDER = "out of order"
    BOTH = "both"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    Something that is wrong.

    Args:
        kind: what is wrong.
        origin: the source record; None where no record explains what was found.
        found_at: where in the sink or in the dead letters that was seen; empty where nothing is.
        detail: what was expected, and what was found.
    """

    kind: Kind
    origin: Origin | None
    found_at: str
    detail: str

    def as_json(self) -> dict[str, Any]:
        """Return all of it, as `--json` shows it."""
        (topic, number), offset = self.origin or ((None, None), None)
        return {
            "kind": self.kind.value,
            "topic": topic,
            "partition": number,
            "offset": offset,
            "found_at": self.found_at or None,
            "detail": self.detail,
        }


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of the source; at the end those without a record."""
    return sorted(findings, key=lambda each: (each.origin is None, each.origin or (), each.kind, each.found_at))


def counted(findings: Iterable[Finding]) -> dict[str, int]:
    """Return how many findings there are of each kind."""
    counts = Counter(each.kind for each in findings)
    return {kind.value.replace(" ", "_"): counts[kind] for kind in Kind}


def str_of(record: Record) -> str:
    """Return where a record lies."""
    return f"{record.partition}@{record.offset}"


def shown(value: bytes | None) -> str:
    """Return as much of a value as a person wants to see."""
    text = text_of(value) or ""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def again(origin: Origin, record: Record) -> Finding:
    """Return that the line of a record stands there once more."""
    return Finding(Kind.DOUBLED, origin, str_of(record), f"{shown(record.value)} appears again")


def missing(fate: Fate, instead: Record | None) -> Finding:
    """Return that nothing of a record was found, or something else in its place."""
    origin = Origin(fate.record.partition, fate.record.offset)
    if instead is not None:
        return other_line(fate, instead)
    detail = f"the line {shown(fate.written.value)} is not in the sink"
    return Finding(Kind.LOST, origin, "", f"no dead letter, expected one for {fate.reason}" if fate.reason else detail)


def other_line(fate: Fate, line: Record) -> Finding:
    """Return that a line is not the one of its record."""
    written, origin = fate.written, Origin(fate.record.partition, fate.record.offset)
    if fate.reason:
        detail = f"rejected now for {fate.reason}, found {shown(line.value)}"
    elif written.value != line.value:
        detail = f"expected {shown(written.value)}, found {shown(line.value)}"
    else:
        expected = f"key {shown(written.key)} and timestamp {written.timestamp} in {fate.to}"
        detail = f"expected {expected}, found key {shown(line.key)} and timestamp {line.timestamp} in {line.partition}"
    return Finding(Kind.CHANGED, origin, str_of(line), detail)


def other_letter(fate: Fate, letter: Letter) -> Iterator[Finding]:
    """Yield that a dead letter is not the one of its record; nothing where the topics may have decided so."""
    written, origin = fate.written, Origin(fate.record.partition, fate.record.offset)
    if letter.reason != fate.reason and letter.reason not in BY_THE_TOPICS:
        detail = f"rejected then for {letter.reason}, now {f'for {fate.reason}' if fate.reason else 'accepted'}"
        yield Finding(Kind.CHANGED, origin, str_of(letter.record), detail)
    elif fate.reason and (letter.record.key, letter.record.value) != (written.key, written.value):
        detail = f"expected {shown(written.value)}, found {shown(letter.record.value)}"
        yield Finding(Kind.CHANGED, origin, str_of(letter.record), detail)
