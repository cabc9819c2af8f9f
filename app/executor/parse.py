"""Parses a chunk, and protects the record flow from a user's parser: no record is lost, whatever it does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.executor.limits import Limits, Now
from app.headers import SOURCE
from app.model import Partition, TaskConfig
from app.records import HEADER_FRAMING, Chunk, offsets_of
from parsers import registry
from parsers.contract import Parsed, Parser, breaches
from parsers.fields.located import cut
from parsers.flume import envelope

PARSER_ERROR = "parser_error"
TOO_LARGE = "too_large"
REFUSED = "refused"
_NO_ROWS, _NO_TEXTS = np.zeros(0, np.int32), pa.array([], pa.string())
NOTHING = Parsed(pa.array([], pa.binary()), _NO_ROWS, _NO_ROWS, _NO_TEXTS, _NO_TEXTS)
LONGEST_TEXT = 1_000
"""How many characters of a reason or a detail are kept: a dead letter must have room for its record."""


def make_parser(config: TaskConfig) -> Parser:
    """Return the configured parser, which also opens Flume's envelope if there is one."""
    return envelope.wrap(registry.load(config.parser.name, config.parser.options), config.format)


def with_headers(chunk: Chunk, config: TaskConfig) -> Chunk:
    """Return a chunk with the headers of its lines: the Flume headers to keep, and the lineage header."""
    names = config.flume_headers
    kept = list(zip(names, envelope.headers(chunk.values, names), strict=True)) if names else []
    if config.lineage:
        kept.append((SOURCE, _sources(chunk)))
    return replace(chunk, kept=kept) if kept else chunk


def _sources(chunk: Chunk) -> pa.BinaryArray:
    """Return `topic-partition@offset` for each record."""
    places = pa.array([_place(each) for each in chunk.partitions], pa.string()).take(pa.array(chunk.sources))
    offsets = pa.array(chunk.offsets).cast(pa.string())
    return cast("pa.BinaryArray", pc.binary_join_element_wise(places, offsets, "").cast(pa.binary()))


@cache
def _place(partition: Partition) -> str:
    return f"{partition}@"


def refuse(parsed: Parsed, chunk: Chunk, sink: Limits, now: Now) -> Parsed:
    """
    Turn the lines that the sink would refuse, given their keys, headers and timestamps, into rejects.

    Where clocks disagree about a timestamp, Kafka decides.
    """
    parsed = _without_oversized(parsed, chunk, sink)
    return _without_untimely(_without_keyless(parsed, chunk.keys_of_lines, sink), chunk.timestamps, sink, now)


def with_keys(chunk: Chunk, parsed: Parsed, pattern: str) -> Chunk:
    """Return a chunk whose lines have the field found by a pattern as their key, or no key if it finds none."""
    if not pattern:
        return chunk
    keys = cut(parsed.values, pattern)
    if len(keys) < len(chunk):
        places = np.full(len(chunk), len(keys))
        places[parsed.rows] = np.arange(len(keys))
        keys = keys.take(pa.array(places, mask=places == len(keys)))
    return replace(chunk, line_keys=keys)


def parse(parser: Parser, values: pa.BinaryArray) -> Parsed:
    """Call the parser. If it raises or breaks its contract, call it row by row to isolate the rows at fault."""
    if not len(values):  # the chunk holds only a partition's end
        return NOTHING
    try:
        parsed = parser.parse(values)
        _check(parsed, len(values))
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a parser is user code and may raise anything
        if len(values) > 1:
            return join([parse(parser, values.slice(row, 1)) for row in range(len(values))])
        parsed = parser_error(_text(error))
    return _with_short_texts(parsed)


def _text(error: BaseException) -> str:
    """Return an exception's type and text, which may hold half a surrogate pair, or fail itself."""
    text = type(error).__name__
    with suppress(Exception):
        text += f": {error}"
    return text.encode(errors="backslashreplace").decode()


def _with_short_texts(parsed: Parsed) -> Parsed:
    if not any(pc.any(_too_long(texts)).as_py() for texts in (parsed.reasons, parsed.details)):
        return parsed
    return replace(parsed, reasons=_shortened(parsed.reasons), details=_shortened(parsed.details))


def _too_long(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.greater(pc.utf8_length(texts), LONGEST_TEXT)


def _shortened(texts: pa.StringArray) -> pa.StringArray:
    begins = pc.utf8_slice_codeunits(texts, 0, LONGEST_TEXT - 1)
    return pc.if_else(_too_long(texts), pc.binary_join_element_wise(begins, "…", ""), texts)


def parser_error(detail: str) -> Parsed:
    """Return the result for a single record on which the parser fails."""
    row = np.zeros(1, np.int32)
    return replace(NOTHING, reject_rows=row, reasons=pa.array([PARSER_ERROR]), details=pa.array([detail]))


def join(parts: Sequence[Parsed]) -> Parsed:
    parts = [NOTHING, *parts]
    begins = np.cumsum([0, *(part.records for part in parts)]).astype(np.int32)
    return Parsed(
        pa.concat_arrays([part.values for part in parts]),
        np.concatenate([part.rows + begin for part, begin in zip(parts, begins, strict=False)]),
        np.concatenate([part.reject_rows + begin for part, begin in zip(parts, begins, strict=False)]),
        pa.concat_arrays([part.reasons for part in parts]),
        pa.concat_arrays([part.details for part in parts]),
    )


def _check(parsed: object, records: int) -> None:
    """
    Raise ValueError for a result that breaks the parser contract.

    The bulk backend reads these arrays' buffers by layout, so a wrong type would produce wrong lines.
    """
    for breach in breaches(parsed, records):
        raise ValueError(f"the parser broke its contract: {breach}")


def _without_oversized(parsed: Parsed, chunk: Chunk, sink: Limits) -> Parsed:
    sizes = np.diff(offsets_of(parsed.values)) + np.diff(offsets_of(chunk.keys_of_lines))[parsed.rows]
    for name, column in chunk.kept:
        sizes += np.diff(offsets_of(column))[parsed.rows] + len(name.encode()) + HEADER_FRAMING
    what = "the line, its key and its headers" if chunk.kept else "the line and its key"
    detail = f"{what} are {{}} bytes; the sink accepts at most {sink.max_bytes}"
    return _reject(parsed, sizes > sink.max_bytes, TOO_LARGE, detail, sizes)


def _without_keyless(parsed: Parsed, keys: pa.BinaryArray, sink: Limits) -> Parsed:
    if not sink.topic.compacted or not keys.null_count:
        return parsed
    keyless = keys.is_null().to_numpy(zero_copy_only=False)[parsed.rows]
    return _reject(parsed, keyless, REFUSED, "the line has no key; the sink's cleanup.policy is compact", parsed.rows)


def _without_untimely(parsed: Parsed, timestamps: NDArray[np.int64], sink: Limits, now: Now) -> Parsed:
    for limit, untimely in sink.untimely(timestamps, now):
        if untimely.any():
            detail = f"timestamp {{}} violates the sink's {limit.setting}={limit.milliseconds} (now {now.latest})"
            parsed = _reject(parsed, untimely[parsed.rows], REFUSED, detail, timestamps[parsed.rows])
    return parsed


def _reject(
    parsed: Parsed, bad: NDArray[np.bool_], reason: str, detail: str, numbers: NDArray[np.integer[Any]]
) -> Parsed:
    """Turn some lines into rejects; each detail shows the line's number from `numbers`."""
    if not bad.any():
        return parsed
    details = [detail.format(number) for number in numbers[bad].tolist()]
    rows = np.concatenate([parsed.reject_rows, parsed.rows[bad]])
    order = np.argsort(rows)
    return Parsed(
        parsed.values.filter(pa.array(~bad)),
        parsed.rows[~bad],
        rows[order],
        pa.concat_arrays([parsed.reasons, pa.array([reason] * len(details), pa.string())]).take(order),
        pa.concat_arrays([parsed.details, pa.array(details, pa.string())]).take(order),
    )
