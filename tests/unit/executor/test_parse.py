"""The record flow is protected from parsers: whatever one returns, each record is a line or a dead letter."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from app.executor.limits import CLOCK_MARGIN_MS, FRAMING_BYTES, Limits, Now
from app.executor.parse import PARSER_ERROR, REFUSED, TOO_LARGE, parse, refuse, with_headers, with_keys
from app.model import NO_EPOCH, Destination, Partition, TimestampLimit
from app.records import HEADER_FRAMING, NO_TIMESTAMP, Chunk
from parsers.contract import Parsed, Parser
from parsers.fields.located import pattern_of
from parsers.flume import envelope
from parsers.idc_access_log import IdcAccessLog
from parsers.testing import outcomes
from tests.data.make import encoded
from tests.fakes import make_task_config
from tests.fakes.parsers import WRONG, Wrong
from tests.independent import cleansed, line

NOW = 1_800_000_000_000
CLOCKS = Now(NOW, NOW)
HOUR = 3_600_000
LINES = [line(0), b"rubbish", line(1)]


def chunk_of(values: Sequence[bytes], keys: Sequence[bytes | None] = (), timestamps: Sequence[int] = ()) -> Chunk:
    """Make a chunk of one partition."""
    return Chunk(
        partitions=[Partition("raw", 0)],
        sources=np.zeros(len(values), np.int32),
        offsets=np.arange(len(values)),
        timestamps=np.array(timestamps or [NOW] * len(values), np.int64),
        keys=pa.array(keys or [None] * len(values), pa.binary()),
        values=pa.array(values, pa.binary()),
        headers=lambda row: [],
        epoch_of=lambda _: NO_EPOCH,
    )


def parsed_by(parser: Parser, chunk: Chunk | None = None, **sink: object) -> Parsed:
    """Parse for a sink with these settings."""
    topic = replace(Destination("clean", 1, 1_000_000), **sink)  # type: ignore[arg-type]  # fields of many types
    chunk = chunk_of(LINES) if chunk is None else chunk
    return refuse(parse(parser, chunk.values), chunk, Limits.of(topic, make_task_config(sink=topic)), CLOCKS)


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_outcome_is_never_a_line(what: str) -> None:
    """Wrong types, nulls and layouts become dead letters, because the backends read these arrays by layout."""
    parsed = parsed_by(Wrong(WRONG[what]))

    values, rejected = {cleansed(0), cleansed(1)}, {"no_marker", PARSER_ERROR}
    for outcome in outcomes(parsed, len(LINES)):
        assert outcome in values if isinstance(outcome, bytes) else outcome[0] in rejected
    # A single row has no gaps in memory, so called row by row that parser is right.
    assert (PARSER_ERROR in parsed.reasons.to_pylist()) == (what != "rows with gaps in memory")
    assert (pa.binary(), 0) == (parsed.values.type, parsed.values.null_count)
    assert parsed.rows.dtype == np.int32
    assert parsed.rows.flags.c_contiguous


@pytest.mark.parametrize(
    ("what", "detail"),
    [
        ("values with 64-bit offsets", "values is large_binary, not an Arrow array of binary"),
        ("rows of 64 bits", "rows is int64, not a one-dimensional array of int32"),
        ("a null among the values", "values holds 1 nulls"),
        ("rows that are a list", "rows is list, not a one-dimensional array of int32"),
        ("an empty reason", "a reason is empty"),
        ("details that are not UTF-8", "details is not valid: Invalid UTF8 sequence at string index 0"),
        ("what only looks like a result", "the result is SimpleNamespace, not Parsed"),
    ],
)
def test_the_dead_letter_says_what_is_wrong(what: str, detail: str) -> None:
    """The parser's author finds the breach in the dead letter's message."""
    parsed = parsed_by(Wrong(WRONG[what]))

    assert any(f"the parser broke its contract: {detail}" in each for each in parsed.details.to_pylist())


def test_a_parser_that_wants_to_exit_loses_no_line() -> None:
    """Otherwise a command would end with its code, which may be 0."""

    def leave_at_rubbish(outcome: Parsed) -> Parsed:
        return outcome if not len(outcome.reasons) else sys.exit(0)

    parsed = parsed_by(Wrong(leave_at_rubbish))

    assert [cleansed(0), cleansed(1)] == parsed.values.to_pylist()
    assert [(1, PARSER_ERROR, "SystemExit: 0")] == list(parsed.rejects())


@pytest.mark.parametrize("what", WRONG)
def test_a_chunk_without_records_has_no_outcome(what: str) -> None:
    """The end of a partition may come without records. A parser that fails even then makes no dead letter."""
    parsed = parsed_by(Wrong(WRONG[what]), chunk_of([]))

    assert [] == outcomes(parsed, 0)


@pytest.mark.parametrize("rows", ["rows", "reject_rows"])
def test_outcomes_in_another_order_are_wrong(rows: str) -> None:
    """They would be taken for other records' results. A parser that is right for single rows is called for each."""
    chunk = chunk_of([line(0), b"rubbish", line(1), b"more rubbish"])

    def mix(right: Parsed) -> Parsed:
        return replace(right, **{rows: getattr(right, rows)[::-1].copy()})

    parsed = parsed_by(Wrong(mix), chunk)

    assert ([0, 2], [1, 3]) == (parsed.rows.tolist(), parsed.reject_rows.tolist())
    assert [cleansed(0), cleansed(1)] == parsed.values.to_pylist()


def test_a_right_outcome_is_handed_on() -> None:
    """It is not copied, and the parser not called again."""
    outcomes: list[Parsed] = []
    chunk = chunk_of([line(0), line(1), b"rubbish", b"more rubbish"])

    def keep(outcome: Parsed) -> Parsed:
        outcomes.append(outcome)
        return outcome

    parsed = parsed_by(Wrong(keep), chunk)

    assert [True] == [outcome is parsed for outcome in outcomes]
    assert [cleansed(0), cleansed(1)] == parsed.values.to_pylist()
    assert ["no_marker"] * 2 == parsed.reasons.to_pylist()


class Fragile:
    """A parser that raises for one value."""

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        if b"poison" in lines.to_pylist():
            msg = "it is poisoned"
            raise RuntimeError(msg)
        return IdcAccessLog().parse(lines)


@pytest.mark.parametrize(
    "values", [[b"poison"], [b"poison", line(0)], [line(0), b"poison"], [line(0), b"poison", line(1)]]
)
def test_a_value_that_breaks_the_parser_is_a_reject_and_the_others_are_not(values: list[bytes]) -> None:
    """The dead letter has the parser's error."""
    parsed = parsed_by(Fragile(), chunk_of(values))

    poisoned = values.index(b"poison")
    assert [(poisoned, PARSER_ERROR, "RuntimeError: it is poisoned")] == list(parsed.rejects())
    assert [row for row in range(len(values)) if row != poisoned] == parsed.rows.tolist()


class Unprintable(Exception):
    """An exception whose text fails."""

    def __str__(self) -> str:
        raise self


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (ValueError("unknown host \ud800"), "ValueError: unknown host \\ud800"),
        (Unprintable(), "Unprintable"),
        (ValueError("ü" * 600_000), f"ValueError: {'ü' * 987}…"),
    ],
    ids=["half a surrogate pair", "no text", "a long text"],
)
def test_any_text_of_an_exception_becomes_a_detail(error: Exception, detail: str) -> None:
    """JSON can hold half a surrogate pair, which no header can."""

    def fail(_: Parsed) -> Parsed:
        raise error

    assert [(0, PARSER_ERROR, detail)] == list(parse(Wrong(fail), pa.array([line(0)], pa.binary())).rejects())


def test_long_texts_are_shortened() -> None:
    """Those of a parser's own rejects, too; others stay as they are."""
    texts = pa.array(["é" * 1_000, "é" * 1_001, "short"])
    chunk = chunk_of([b"rubbish"] * 3)

    parsed = parsed_by(Wrong(lambda parsed: replace(parsed, reasons=texts, details=texts)), chunk)

    assert ["é" * 1_000, "é" * 999 + "…", "short"] == parsed.reasons.to_pylist() == parsed.details.to_pylist()


def rejects(chunk: Chunk, **sink: object) -> list[tuple[int, str, str]]:
    return list(parsed_by(IdcAccessLog(), chunk, **sink).rejects())


def test_a_line_too_large_for_the_sink_is_a_reject() -> None:
    """Its key counts, and there must be room for the record's framing."""
    size = len(cleansed(0))
    chunk = chunk_of([line(0), b"rubbish", line(1)], [b"k", b"k", b"keyed"])

    ((rubbish, *_), large) = rejects(chunk, max_bytes=size + 1 + FRAMING_BYTES)

    assert 1 == rubbish
    assert (2, TOO_LARGE, f"the line and its key are {size + 5} bytes; the sink accepts at most {size + 1}") == large
    assert 1 == len(rejects(chunk, max_bytes=size + 5 + FRAMING_BYTES))


BEFORE = TimestampLimit("message.timestamp.before.max.ms", HOUR)
AFTER = TimestampLimit("message.timestamp.difference.max.ms", HOUR)


@pytest.mark.parametrize(
    ("stamp", "limit"),
    [
        (NOW + HOUR + CLOCK_MARGIN_MS, None),
        (NOW + HOUR + CLOCK_MARGIN_MS + 1, AFTER),
        ((1 << 63) - 1, AFTER),
        (NOW - HOUR - CLOCK_MARGIN_MS, None),
        (NOW - HOUR - CLOCK_MARGIN_MS - 1, BEFORE),
        (0, BEFORE),
        (NO_TIMESTAMP, None),
    ],
)
def test_a_timestamp_that_the_sink_refuses_is_a_reject(stamp: int, limit: TimestampLimit | None) -> None:
    """The detail names the timestamp and the topic's setting. Within the margin for clocks, the line is tried."""
    chunk = chunk_of(LINES, timestamps=[NOW, stamp, stamp])

    parsed = parsed_by(IdcAccessLog(), chunk, before=BEFORE, after=AFTER)

    detail = limit and f"timestamp {stamp} violates the sink's {limit.setting}={HOUR} (now {NOW})"
    expected = [(1, "no_marker"), *([(2, REFUSED)] if limit else [])]
    assert expected == [each[:2] for each in parsed.rejects()]
    assert not limit or detail == parsed.details[1].as_py()
    assert [cleansed(0), *([] if limit else [cleansed(1)])] == parsed.values.to_pylist()
    assert [0, 2][: len(parsed.values)] == parsed.rows.tolist()


def test_a_compacted_sink_takes_no_line_without_a_key() -> None:
    """An empty key is a key. Any other sink accepts lines without one."""
    chunk = chunk_of([line(0), line(1), b"rubbish", line(2)], [None, b"", None, None])

    found = rejects(chunk, compacted=True)

    detail = "the line has no key; the sink's cleanup.policy is compact"
    assert [(0, REFUSED, detail), (3, REFUSED, detail)] == [found[0], found[2]]
    assert 1 == len(rejects(chunk))


def test_lines_get_a_field_as_their_key() -> None:
    """The key is in the row of the line's record, whatever lies between. Dead letters keep their record's key."""
    chunk = chunk_of([b"rubbish", line(0), b"", line(1)], [b"1", b"2", b"3", b"4"])
    parsed = parse(IdcAccessLog(), chunk.values)

    keyed = with_keys(chunk, parsed, pattern_of(IdcAccessLog(), "url"))

    urls = [cleansed(number).rpartition(b"|")[2] for number in range(2)]
    assert [None, urls[0], None, urls[1]] == keyed.keys_of_lines.to_pylist()
    assert chunk.keys is keyed.keys
    assert chunk is with_keys(chunk, parsed, "")
    assert (
        []
        == with_keys(chunk_of([]), parse(IdcAccessLog(), chunk_of([]).values), "(?P<field>)").keys_of_lines.to_pylist()
    )


def test_the_key_of_a_line_counts_and_not_that_of_its_record() -> None:
    """A line can be too large because of its own key, and with it enter a compacted sink without a record key."""
    chunk = chunk_of([line(0), line(1)], [None, b"k" * 1_000])
    parsed = parse(IdcAccessLog(), chunk.values)
    sink = Destination("clean", 1, len(cleansed(0)) + len(b"238") + 512, compacted=True)

    def refused(sink: Destination, pattern: str) -> list[tuple[int, str]]:
        limits = Limits.of(sink, make_task_config(sink=sink))
        return [each[:2] for each in refuse(parsed, with_keys(chunk, parsed, pattern), limits, CLOCKS).rejects()]

    houseid = pattern_of(IdcAccessLog(), "houseid")
    assert [] == refused(sink, houseid)
    assert [(0, TOO_LARGE), (1, TOO_LARGE)] == refused(replace(sink, max_bytes=sink.max_bytes - 1), houseid)
    assert [(0, REFUSED), (1, REFUSED)] == refused(sink, "none(?P<field>)")
    assert [(0, REFUSED), (1, TOO_LARGE)] == refused(sink, "")


def event(body: bytes, /, **headers: str) -> bytes:
    """Encode a Flume event."""
    return encoded({"headers": headers, "body": body})


def test_lines_keep_flumes_headers() -> None:
    """The configured headers of each event are columns of its chunk; a missing header is null."""
    chunk = chunk_of([event(line(0), host="a", other="b"), b"", event(line(1), file="f")])

    kept = with_headers(chunk, make_task_config(flume_headers=("host", "file"))).kept

    assert {"host": [b"a", None, None], "file": [None, None, b"f"]} == {
        name: column.to_pylist() for name, column in kept
    }
    assert with_headers(chunk, make_task_config()) is chunk


@pytest.mark.parametrize("names", [(), ("host",)])
def test_lines_tell_which_record_they_were(names: tuple[str, ...]) -> None:
    """With `lineage.headers`, each row has the place of its record, in addition to Flume's headers."""
    one = chunk_of([event(line(0), host="a"), b"rubbish", event(line(1))])
    sources, partitions = np.array([1, 1, 0], np.int32), [Partition("a-b", 0), Partition("raw", 12)]
    chunk = replace(one, partitions=partitions, sources=sources, offsets=np.array([7, 1 << 40, 0]))

    *flumes, (name, places) = with_headers(chunk, make_task_config(flume_headers=names, lineage=True)).kept

    assert list(names) == [each for each, _ in flumes]
    assert ("winnow.source", pa.binary()) == (name, places.type)
    assert [b"raw-12@7", b"raw-12@1099511627776", b"a-b-0@0"] == places.to_pylist()


def test_headers_count_in_the_size_of_a_line() -> None:
    """A line that is too large only with its headers is a reject."""
    parser = envelope.wrap(IdcAccessLog(), "flume-avro")
    chunk = with_headers(
        chunk_of([event(line(0)), event(line(1), ü="h" * 30)], [None, b"key"]), make_task_config(flume_headers=("ü",))
    )
    size = len(cleansed(1)) + len(b"key") + len("ü".encode()) + 30 + HEADER_FRAMING

    fits, too_large = (parsed_by(parser, chunk, max_bytes=size + 512 - spare) for spare in (0, 1))

    assert [] == list(fits.rejects())
    detail = f"the line, its key and its headers are {size} bytes; the sink accepts at most {size - 1}"
    assert [(1, TOO_LARGE, detail)] == list(too_large.rejects())
