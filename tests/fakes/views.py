"""What each command with a table shows, with as many partitions and as long names and numbers as an operator may have."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import Any

from app.cli.layout import View
from app.facts import OpenTransaction
from app.model import (
    CommittedOffset,
    Destination,
    Guarantee,
    OffsetRange,
    Outcome,
    Owner,
    Partition,
    Pause,
    Plugin,
    Receipt,
    TaskConfig,
    Watermarks,
)
from app.offsets.metadata import Counts, OffsetMetadata
from app.operate.audit import Scope
from app.operate.dead_letter_replay import Tally
from app.operate.dead_letters import Letter, Statistics
from app.operate.expected import Origin
from app.operate.findings import Defect, Finding
from app.operate.judging import Verdict
from app.operate.lag import PartitionLag
from app.operate.ranges import LeftOut, Range, Routing, Why
from app.operate.reading import Span
from app.operate.replay import Part
from app.operate.resets import Reset
from app.operate.watching import Look, rows
from app.records import Record

GROUP, TOPIC, SINK, DEAD = "cleansing", *(f"{name:x<30}" for name in ("raw-logs-", "clean-logs-", "dead-letters-"))
START, LAG = 12_345_678, 1_234_567
"""The committed offset and the lag of each partition, about."""
NOW = 1_763_900_000_000
PAUSE = Pause(NOW, "vm")
TASKS = TaskConfig(
    GROUP,
    Guarantee.EXACTLY_ONCE,
    Destination(SINK, 256, 1_000_000),
    Destination(DEAD, 256, 1_000_000),
    "raw",
    Plugin("idc"),
    {},
)


def views(partitions: int) -> dict[str, View]:
    """Return the view of each command, for this many partitions, or findings, or dead letters."""
    places = [Partition(TOPIC, number) for number in range(partitions)]
    found = lags(partitions)
    letters = [_letter(each) for each in places]
    return {
        "lag": _of("lag")._view(GROUP, found, PAUSE),
        "top": _of("top")._view(GROUP, rows(Look(10, found, None), Look(12, found, None)), PAUSE),
        "audit": _audit(places),
        "dlq ls": _of("dlq")._listed(DEAD, letters, more=True),
        "dlq stats": _of("dlq")._counted(DEAD, Statistics(letters)),
        "dlq show": _of("dlq")._shown(DEAD, letters[0]),
        "dlq replay": _of("dlq")._view(TASKS, Tally(Counter(houseid=LAG), Counter(houseid=LAG), LAG), done=True),
        "replay": _replay(places, done=True),
        "replay --dry-run": _replay(places, done=False),
        "offsets show": _of("offsets")._stored(GROUP, found),
        "offsets show, by two": _of("offsets")._stored(GROUP, [*found[1:], _lag(places[0], "another-host")]),
        "offsets reset": _of("offsets")._view(GROUP, [_reset(each) for each in found], done=True),
        "transactions ls": _transactions(places),
    }


def lags(partitions: int, *, done: int = 0, seconds: float | None = LAG + 0.5) -> list[PartitionLag]:
    """Return the lag of so many partitions, after so many more records of each were cleansed."""
    return [replace(_lag(Partition(TOPIC, number), done=done), seconds=seconds) for number in range(partitions)]


def _of(module: str) -> Any:
    """Return a module that its command hides."""
    return sys.modules[f"app.cli.{module}"]


def _lag(at: Partition, host: str = "winnow-driver-6f7d9c8b5-x2x4q", done: int = 0) -> PartitionLag:
    offset = START + at.number + done
    counts = Counts(LAG + done, LAG - 2 + done, {"houseid": 1}, filtered={"adverts": 1})
    metadata = OffsetMetadata("id", LAG, counts, owner=Owner(NOW, host, SINK, 3), blocked="")
    end = offset + LAG + at.number
    marks = Watermarks(0 if at.number % 3 else offset + 5, end, end + at.number)
    return PartitionLag(at, CommittedOffset(offset, str(metadata)), marks, LAG + 0.5)


def _letter(at: Partition) -> Letter:
    errors = {
        "topic": at.topic,
        "partition": f"{at.number}",
        "offset": f"{START + at.number}",
        "exception.class.name": "illegal_character",
        "exception.message": "url has an illegal character at position 1234567, which readers of the sink would split",
    }
    headers = [(f"__connect.errors.{name}", value.encode()) for name, value in errors.items()]
    return Letter.of(Record(Partition(DEAD, at.number), LAG + at.number, NOW, None, b"one\ttwo " * 40, headers))


def _audit(places: list[Partition]) -> View:
    found = [
        Finding(Defect.OUT_OF_ORDER, Origin(each, START), f"{SINK}-{each.number}@{LAG}", "its line comes after another")
        for each in places
    ]
    judged = {each: Range([Span(START, START + LAG)], [Span(START, START + LAG)]) for each in places}
    left_out = [LeftOut(Why.EXPIRED, each, LAG) for each in places]
    verdict = Verdict(LAG, LAG, LAG, found, Counter({Why.COMPACTED: LAG}))
    scope = Scope(TASKS, Routing(TASKS.sink, TASKS.dead_letters), [], [], {}, judged, left_out)
    view: View = _of("audit")._view(GROUP, scope, [verdict], None)
    return view


def _replay(places: list[Partition], *, done: bool) -> View:
    parts = [Part(START, START + LAG, OffsetRange(each, None, START)) for each in places]
    receipts = {
        each: Receipt(
            each,
            START,
            START + LAG,
            LAG,
            LAG - 2,
            dead={"houseid": 1},
            filtered={"adverts": 1},
            outcome=Outcome.BLOCKED,
            error="its record is too large",
        )
        for each in places
    }
    view: View = _of("replay")._view(TASKS, parts, receipts if done else {}, done=done)
    return view


def _reset(at: PartitionLag) -> Reset:
    return Reset(at, START - LAG, "the partition begins there, and what was before it has been deleted by retention")


def _transactions(places: list[Partition]) -> View:
    found = [OpenTransaction(each, "committing", NOW, LAG, 12_345) for each in places]
    view: View = _of("transactions")._view(GROUP, found)
    return view
