"""User parsers that each break the contract in a different way, and an isolated parser without a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from app.executor.parse import make_parser, parse
from app.model import TaskConfig
from parsers.contract import Parse, Parsed
from parsers.idc_access_log import IdcAccessLog


class Wrong:
    """A parser that damages its outcomes before it returns them."""

    def __init__(self, change: Callable[[Parsed], Any]) -> None:
        self._change = change
        self._right = IdcAccessLog()

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        return cast("Parsed", self._change(self._right.parse(lines)))


def _strided(rows: Any) -> Any:
    return np.repeat(rows, 2)[::2]


def _look_alike(parsed: Parsed) -> SimpleNamespace:
    return SimpleNamespace(**{each.name: getattr(parsed, each.name) for each in fields(parsed)})


def _not_utf8(texts: Any) -> Any:
    return pa.array([b"\xff"] * len(texts), pa.binary()).view(pa.string())


WRONG: Mapping[str, Callable[[Parsed], Any]] = {
    "values with 64-bit offsets": lambda parsed: replace(parsed, values=parsed.values.cast(pa.large_binary())),
    "values that are text": lambda parsed: replace(parsed, values=parsed.values.cast(pa.string())),
    "values in chunks": lambda parsed: replace(parsed, values=pa.chunked_array([parsed.values])),
    "values that are a list": lambda parsed: replace(parsed, values=parsed.values.to_pylist()),
    "a null among the values": lambda parsed: replace(
        parsed, values=pa.array([None] * len(parsed.values), pa.binary())
    ),
    "rows of 64 bits": lambda parsed: replace(parsed, rows=parsed.rows.astype(np.int64)),
    "rows of floats": lambda parsed: replace(parsed, rows=parsed.rows.astype(np.float64)),
    "rows that are a list": lambda parsed: replace(parsed, rows=parsed.rows.tolist()),
    "rows with gaps in memory": lambda parsed: replace(parsed, rows=_strided(parsed.rows)),
    "rows in a square": lambda parsed: replace(parsed, rows=parsed.rows.reshape(-1, 1)),
    "negative rows": lambda parsed: replace(parsed, rows=parsed.rows - 9),
    "rejects of 64 bits": lambda parsed: replace(parsed, reject_rows=parsed.reject_rows.astype(np.int64)),
    "reasons that are bytes": lambda parsed: replace(parsed, reasons=parsed.reasons.cast(pa.binary())),
    "a null among the reasons": lambda parsed: replace(
        parsed, reasons=pa.array([None] * len(parsed.reasons), pa.string())
    ),
    "details with 64-bit offsets": lambda parsed: replace(parsed, details=parsed.details.cast(pa.large_string())),
    "an empty reason": lambda parsed: replace(parsed, reasons=pa.array([""] * len(parsed.reasons), pa.string())),
    "reasons that are not UTF-8": lambda parsed: replace(parsed, reasons=_not_utf8(parsed.reasons)),
    "details that are not UTF-8": lambda parsed: replace(parsed, details=_not_utf8(parsed.details)),
    "a line too few": lambda parsed: replace(parsed, values=parsed.values[:-1]),
    "a reason too few": lambda parsed: replace(parsed, reasons=parsed.reasons[:-1]),
    "what only looks like a result": _look_alike,
    "something else": lambda parsed: parsed.values,
    "nothing": lambda parsed: None,
}
"""What is wrong, and how it is done to an outcome."""


class NotIsolated:
    """What parses in a separate process, but in this one."""

    def __init__(self, config: TaskConfig, _watchdog: object) -> None:
        self._parser = make_parser(config)

    def __enter__(self) -> Parse:
        return self.parse

    def __exit__(self, *_: object) -> None:
        pass

    def parse(self, values: pa.BinaryArray) -> Parsed:
        return parse(self._parser, values)
