"""Drops lines on purpose, and counts them by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.model import FilterRule
from parsers.contract import Parsed, Parser, Rows
from parsers.filters import LineFilter


@dataclass(frozen=True, slots=True)
class Dropped:
    """
    The rows of a chunk that filters dropped.

    Args:
        rows: ascending.
        by: for each row, the index of its rule.
        rules: the names of all rules.
    """

    rows: Rows
    by: NDArray[np.int8]
    rules: Sequence[str]

    def counts(self, begin: int, end: int) -> Mapping[str, int]:
        """Return how many of the rows from `begin` up to but excluding `end` each rule dropped."""
        first, after = np.searchsorted(self.rows, (begin, end)).tolist()
        counts = np.bincount(self.by[first:after], minlength=len(self.rules))
        return {rule: count for rule, count in zip(self.rules, counts.tolist(), strict=True) if count}


NONE_DROPPED = Dropped(np.zeros(0, np.int32), np.zeros(0, np.int8), ())


class Filters:
    """The rules of a configuration, in order: the first one that drops a line counts it."""

    def __init__(self, rules: Sequence[FilterRule], parser: Parser) -> None:
        self._names = [each.name for each in rules]
        self._filters = [LineFilter(parser, each.field, each.check, keeps=each.keeps) for each in rules]

    def drop(self, parsed: Parsed) -> tuple[Parsed, Dropped]:
        """Return the result without the lines that are dropped, and what was dropped."""
        if not self._filters:
            return parsed, NONE_DROPPED
        values, left, by = parsed.values, np.arange(len(parsed.rows)), np.full(len(parsed.rows), -1, np.int8)
        for number, each in enumerate(self._filters):
            drops = each.drops(values)
            if drops.any():
                by[left[drops]] = number
                left, values = left[~drops], values.filter(pa.array(~drops))
        dropped = by >= 0
        kept = replace(parsed, values=values, rows=parsed.rows[left])
        return kept, Dropped(parsed.rows[dropped], by[dropped], self._names)
