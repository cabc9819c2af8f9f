"""Feeds the same values to both engines. Each value must have one outcome, identical on both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from parsers.contract import Parsed, Parser
from parsers.delimited import Delimited
from parsers.fields.checks import Check
from parsers.flume.envelope import headers, wrap
from parsers.idc_access_log import IdcAccessLog
from parsers.testing import batch

CLEANSED = "cleansed"
HEADERS = ("host", "timestamp", "", "名", "k")
NAMES = ("a", "b", "c", "d")


class Disagreement(AssertionError):
    """A value has no outcome, several, or different ones on the two engines. The message shows the value."""


class Pair(NamedTuple):
    """One parser on both engines, and its options."""

    made_of: Mapping[str, Any]
    plain: Parser
    compiled: Parser

    @classmethod
    def of(cls, make: Callable[..., Parser], format: str = "raw", **options: Any) -> Pair:  # noqa: A002 - its name
        """Make the parser on each engine, in a format's envelope."""
        engines = (wrap(make(**options, engine=each), format, engine=each) for each in ("plain", "compiled"))
        return cls({"parser": make.__name__, "format": format, **options}, *engines)

    def outcomes(self, values: Sequence[bytes | None]) -> Counter[str]:
        """
        Parse values on both engines. Return how many were cleansed, and how many rejected for each reason.

        Raises:
            Disagreement: with the first value that the engines treat differently.
        """
        plain, compiled = (each.parse(batch(values)) for each in (self.plain, self.compiled))
        if not (_whole(plain, len(values)) and _same(plain, compiled)):
            raise Disagreement(self._culprit(values))
        return Counter({CLEANSED: len(plain.rows)}) + Counter(plain.reasons.to_pylist())

    def _culprit(self, values: Sequence[bytes | None]) -> str:
        for value in values:
            plain, compiled = (each.parse(batch([value])) for each in (self.plain, self.compiled))
            if not (_whole(plain, 1) and _same(plain, compiled)):
                return f"{dict(self.made_of)}: {value!r} becomes\n{plain} on plain,\n{compiled} on compiled"
        return f"{dict(self.made_of)}: these differ only together: {values!r}"


def access_log(format: str = "raw") -> Pair:  # noqa: A002 - as above
    """Return the access-log parser."""
    return Pair.of(IdcAccessLog, format)


def delimited(random: Random) -> Pair:
    """Return a parser of delimited lines with random options."""
    fields = NAMES[: random.randint(1, 4)]
    escape = [name for name in fields if random.random() < 0.4]
    checks = {
        name: Check.NOT_EMPTY if name in escape else random.choice([*Check]) for name in fields if random.random() < 0.6
    }
    written = random.choices(fields, k=random.randint(1, 5))
    return Pair.of(
        Delimited,
        fields=fields,
        marker=random.choice(["", "<<<!>>>", '"', "ab"]),
        separator=random.choice([",", "<<<!>>>", "::", "\x01", ",<", "aab"]),
        checks=checks,
        escape=escape,
        output="x" + "|".join(f"{{{name}}}" for name in written),
    )


def check_headers(values: Sequence[bytes | None]) -> None:
    """
    Read the headers of Flume's events on both engines.

    Raises:
        Disagreement: they are not the same.
    """
    plain, compiled = (headers(batch(values), HEADERS, engine=each) for each in ("plain", "compiled"))
    for name, one, other in zip(HEADERS, plain, compiled, strict=True):
        if not one.equals(other):
            row = next(row for row in range(len(values)) if one[row] != other[row])
            raise Disagreement(f"header {name!r} of {values[row]!r} is {one[row]} on plain, {other[row]} on compiled")


def _whole(parsed: Parsed, count: int) -> bool:
    rows = np.sort(np.concatenate([parsed.rows, parsed.reject_rows]))
    return len(parsed.values) == len(parsed.rows) and np.array_equal(rows, np.arange(count))


def _same(one: Parsed, other: Parsed) -> bool:
    columns: tuple[tuple[pa.Array[Any], pa.Array[Any]], ...] = (
        (one.values, other.values),
        (one.reasons, other.reasons),
        (one.details, other.details),
    )
    return (
        np.array_equal(one.rows, other.rows)
        and np.array_equal(one.reject_rows, other.reject_rows)
        and all(mine.equals(theirs) for mine, theirs in columns)
    )
