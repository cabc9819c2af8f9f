"""Takes lines out of the envelope they came in, before a parser sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parsers.contract import Parsed, Parser, Rows
from parsers.delimited import as_binary
from parsers.engine import Engine, choose
from parsers.errors import ParserOptionError, hint
from parsers.flume import Kind, NoEvent, body

FORMATS = ("raw", "flume-avro", "auto")
REASON = "envelope"
_DETAILS = {
    Kind.TRUNCATED: "the value is not an Avro event of Flume: it ends before the event does",
    Kind.LEFTOVER: "the value is not an Avro event of Flume: more bytes follow the event",
    Kind.MALFORMED: "the value is not an Avro event of Flume: its headers or its lengths make no sense",
}


def wrap(parser: Parser, format: str, *, engine: str = "auto") -> Parser:  # noqa: A002 - what the option is called
    """
    Give a parser that takes each line out of its envelope first.

    Args:
        parser: what parses the lines.
        format: `raw`, a value is a line; `flume-avro`, a value is one Avro event of Flume whose body is the line, or
            else is rejected as `envelope`; `auto`, a value that is exactly one such event is opened, any other is a
            line.
        engine: `compiled`, `plain`, or `auto` for compiled where Numba is there.

    Raises:
        ParserOptionError: there is no such format.
    """
    if format not in FORMATS:
        msg = f"format: no format {format!r}; {hint(str(format), FORMATS)}"
        raise ParserOptionError(msg)
    return parser if format == "raw" else FromFlume(parser, strict=format == "flume-avro", engine=choose(engine))


@dataclass(frozen=True, slots=True)
class Opened:
    """
    The lines taken out of a batch of values.

    Args:
        lines: the lines; a null or an empty value stays what it is.
        rows: the row of each line in the batch.
        kinds: what each value of the batch was.
    """

    lines: pa.BinaryArray
    rows: NDArray[np.int64]
    kinds: NDArray[np.uint8]


class FromFlume:
    """Parses the bodies of Flume's Avro events."""

    def __init__(self, parser: Parser, *, strict: bool, engine: Engine) -> None:
        """Keep the parser; `strict` rejects what is not an event, otherwise it is a line itself."""
        self._parser = parser
        self._strict = strict
        self._open = _open_plain if engine is Engine.PLAIN else _open_compiled
        self._engine = engine

    @property
    def engine(self) -> Engine:
        """Which implementation of the rules is at work."""
        return self._engine

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """Open the envelopes, parse what was in them, and give every row its number in the batch."""
        opened = self._open(as_binary(lines), strict=self._strict)
        parsed = self._parser.parse(opened.lines)
        return parsed if len(opened.lines) == len(lines) else _renumbered(parsed, opened)


def _renumbered(parsed: Parsed, opened: Opened) -> Parsed:
    refused = np.flatnonzero(opened.kinds)
    reject_rows = np.concatenate([refused, opened.rows[parsed.reject_rows]])
    order = pa.array(np.argsort(reject_rows), pa.int64())
    reasons = pa.concat_arrays([pa.array([REASON] * len(refused), pa.string()), parsed.reasons])
    sentences = [_DETAILS[Kind(kind)] for kind in opened.kinds[refused].tolist()]
    details = pa.concat_arrays([pa.array(sentences, pa.string()), parsed.details])
    return Parsed(
        values=parsed.values,
        rows=_rows(opened.rows[parsed.rows]),
        reject_rows=_rows(np.sort(reject_rows)),
        reasons=reasons.take(order),
        details=details.take(order),
    )


def _rows(numbers: NDArray[np.int64]) -> Rows:
    return numbers.astype(np.int32)


def _open_plain(values: pa.BinaryArray, *, strict: bool) -> Opened:
    kinds = np.zeros(len(values), np.uint8)
    lines = values.to_pylist()
    for row, value in enumerate(lines):
        found = body(value) if value else value
        if not isinstance(found, NoEvent):
            lines[row] = found
        elif strict:
            kinds[row] = found.kind
    rows = np.flatnonzero(kinds == Kind.EVENT)
    return Opened(pa.array([lines[row] for row in rows.tolist()], pa.binary()), rows, kinds)


def _open_compiled(values: pa.BinaryArray, *, strict: bool) -> Opened:
    from parsers import kernel
    from parsers.compiled import Buffers

    source = Buffers.of(values)
    spans = np.empty((source.total, 2), np.int64)
    kinds = np.empty(source.total, np.uint8)
    events = kernel.bodies(source.values, source.offsets, source.validity, source.first, source.total, spans, kinds)
    if not strict:
        kinds[:] = Kind.EVENT
    rows = np.flatnonzero(kinds == Kind.EVENT)
    if not strict and events == 0:
        return Opened(values, rows, kinds)
    out = pa.allocate_buffer(int((spans[rows, 1] - spans[rows, 0]).sum()) + kernel.SLACK)
    offsets = pa.allocate_buffer(4 * (len(rows) + 1))
    kernel.gather(spans, rows, out.address, offsets.address)
    lines = pa.Array.from_buffers(pa.binary(), len(rows), [_validity(values, rows), offsets, out])
    return Opened(cast("pa.BinaryArray", lines), rows, kinds)


def _validity(values: pa.BinaryArray, rows: NDArray[np.int64]) -> pa.Buffer | None:
    if not values.null_count:
        return None
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return pa.py_buffer(np.packbits(valid[rows], bitorder="little").tobytes())
