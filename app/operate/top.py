"""Lag and rates of the partitions, from two looks at the group's offsets, for `winnow top`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from app.operate.lag import PartitionLag, severity
from app.operate.watching import Look


@dataclass(frozen=True, slots=True)
class Row:
    """A partition between two looks; rates are per second, and None before the second one."""

    at: PartitionLag
    records: float | None
    dead: float | None
    closing: float | None
    """Offsets by which the lag shrinks; negative if it grows."""
    share: float | None
    """The percentage of dead letters since its counts began."""

    @property
    def seconds_to_close(self) -> float | None:
        return self.at.lag / self.closing if self.at.lag and self.closing and self.closing > 0 else None

    def as_json(self) -> dict[str, Any]:
        rates = {"records_per_second": self.records, "dead_letters_per_second": self.dead}
        more = {"dead_letters_percent": self.share, "seconds_to_close": self.seconds_to_close}
        return self.at.as_json() | rates | more


def rows(before: Look | None, now: Look) -> list[Row]:
    earlier, seconds = ([], 0.0) if before is None else (before.found, now.at - before.at)
    known = {each.partition: each for each in earlier}
    return chosen([_row(known.get(each.partition), each, seconds) for each in now.found], "lag")


ORDERS: Mapping[str, Callable[[Row], Any]] = {
    "lag": lambda row: severity(row.at),
    "age": lambda row: -(row.at.seconds or 0),
    "records/s": lambda row: -(row.records or 0),
    "dead letters/s": lambda row: -(row.dead or 0),
    "name": lambda row: row.at.partition,
}
"""What rows can be sorted by: the first is the default, and has the worst first."""


def following(order: str) -> str:
    names = [*ORDERS, *ORDERS]
    return names[names.index(order) + 1]


def chosen(found: Collection[Row], order: str, text: str = "") -> list[Row]:
    """Return the rows with this text in their partition's name or problem, in whatever case, in an order."""
    having = (each for each in found if text.lower() in f"{each.at.partition} {each.at.problem}".lower())
    return sorted(having, key=ORDERS[order])


def _row(before: PartitionLag | None, now: PartitionLag, seconds: float) -> Row:
    metadata = now.metadata
    counts = metadata.counts
    share = 100 * counts.dead_total / counts.records if counts.records else None
    if before is None or seconds <= 0:
        return Row(now, None, None, None, share)
    earlier = before.metadata
    done = counts.since(earlier.counts) if metadata.continues(earlier) else counts  # counts that restarted are all new
    closing = None if before.lag is None or now.lag is None else (before.lag - now.lag) / seconds
    return Row(now, done.records / seconds, done.dead_total / seconds, closing, share)


def summed(found: Collection[Row]) -> dict[str, float]:
    return {
        "lag": sum(each.at.lag or 0 for each in found),
        "records_per_second": round(sum(each.records or 0 for each in found), 1),
        "dead_letters_per_second": round(sum(each.dead or 0 for each in found), 1),
    }
