"""Opens the envelope in which Flume may have sent a line, before the parser sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parsers.compiled.buffers import as_binary
from parsers.compiled.engine import Engine, choose
from parsers.contract import HasFields, Parsed, Parser
from parsers.errors import ParserOptionError, hint
from parsers.flume.event import Kind, Unwrapped

FORMATS = ("raw", "flume-avro", "auto")
REASON = "envelope"
_DETAILS = {
    Kind.TRUNCATED: "the value is not a Flume Avro event: it is truncated",
    Kind.LEFTOVER: "the value is not a Flume Avro event: extra bytes follow it",
    Kind.MALFORMED: "the value is not a Flume Avro event: its headers or lengths are invalid",
}


def wrap(parser: Parser, format: str, *, engine: str = "auto") -> Parser:  # noqa: A002 - what the option is called
    """
    Return a parser that extracts each line from its envelope and passes it to `parser`.

    Args:
        parser: parses the lines.
        format: `raw`: each value is a line. `flume-avro`: each value is one Flume Avro event whose body is the line;
            any other value is rejected as `envelope`. `auto`: a value that is exactly one such event is opened, and any
            other value is a line.
        engine: `compiled`, `plain`, or `auto` for compiled if Numba can be imported and plain if not.

    Raises:
        ParserOptionError: there is no such format or engine, or the engine is `compiled` and Numba cannot be imported.
    """
    if format not in FORMATS:
        raise ParserOptionError(f"format: no format {format!r}; {hint(str(format), FORMATS)}")
    return parser if format == "raw" else FromFlume(parser, strict=format == "flume-avro", engine=choose(engine))


def headers(values: pa.BinaryArray, names: Sequence[str], *, engine: str = "auto") -> list[pa.BinaryArray]:
    """
    Return a column for each named header of Flume events: as long as `values`, null if there is no such header.

    A value that is not an event has no headers. `engine` is as for `wrap`.
    """
    return _module(choose(engine)).headers(as_binary(values), names)


class FromFlume:
    """
    Parses the bodies of Flume Avro events.

    With `strict`, a value that is not an event is rejected; otherwise it is a line itself.
    """

    def __init__(self, parser: Parser, *, strict: bool, engine: Engine) -> None:
        self._parser = parser
        self._strict = strict
        self._open = _module(engine).unwrapped
        self.engine = engine
        """The engine in use: never `auto`."""

    @property
    def output_fields(self) -> Mapping[str, str]:
        return self._parser.output_fields if isinstance(self._parser, HasFields) else {}

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """Open the envelopes and parse the lines in them. Rows are numbered as in `lines`."""
        opened, kinds = self._open(as_binary(lines), strict=self._strict)
        parsed = self._parser.parse(opened)
        return parsed if len(opened) == len(lines) else _renumbered(parsed, kinds)


class _Module(Protocol):
    def unwrapped(self, values: pa.BinaryArray, *, strict: bool) -> Unwrapped: ...
    def headers(self, values: pa.BinaryArray, names: Sequence[str]) -> list[pa.BinaryArray]: ...


def _module(engine: Engine) -> _Module:
    """Import only what this engine needs: Numba may be missing, and the kernels do not need fastavro."""
    if engine is Engine.PLAIN:
        from parsers.flume import plain

        return plain
    from parsers.flume import compiled

    return compiled


def _renumbered(parsed: Parsed, kinds: NDArray[np.uint8]) -> Parsed:
    """Return the result with the batch's row numbers, and with values that could not be opened as rejects."""
    opened, refused = np.flatnonzero(kinds == Kind.EVENT), np.flatnonzero(kinds)
    reject_rows = np.concatenate([refused, opened[parsed.reject_rows]])
    order = pa.array(np.argsort(reject_rows), pa.int64())
    reasons = pa.concat_arrays([pa.array([REASON] * len(refused), pa.string()), parsed.reasons])
    sentences = [_DETAILS[Kind(kind)] for kind in kinds[refused].tolist()]
    details = pa.concat_arrays([pa.array(sentences, pa.string()), parsed.details])
    return Parsed(
        values=parsed.values,
        rows=opened[parsed.rows].astype(np.int32),
        reject_rows=np.sort(reject_rows).astype(np.int32),
        reasons=reasons.take(order),
        details=details.take(order),
    )
