"""Between a user's parser and the record flow: whatever the parser returns, each record is a line or a dead letter."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from app.executor.output import Output
from app.executor.parse import PARSER_ERROR, TOO_LARGE, make_parser, parse
from app.model import Partition
from app.records import HEADER_FRAMING, Chunk
from parsers.contract import Parsed, Parser
from parsers.idc_access_log import IdcAccessLog
from parsers.testing import outcomes
from tests.fakes import make_task_config
from tests.fakes.parsers import WRONG, Wrong
from tests.independent import cleansed, line

LINES = pa.array([line(0), b"rubbish", line(1)], pa.binary())
ROOMY = 1_000_000
AVRO = fastavro.parse_schema(
    {
        "type": "record",
        "name": "AvroFlumeEvent",
        "fields": [{"name": "headers", "type": {"type": "map", "values": "string"}}, {"name": "body", "type": "bytes"}],
    }
)


def chunk_of(values: pa.BinaryArray, keys: Sequence[bytes | None] | None = None) -> Chunk:
    """Make a chunk of these values, with these keys or none."""
    rows = np.arange(len(values))
    return Chunk(
        partitions=[Partition("raw", 0)],
        sources=np.zeros(len(values), np.int32),
        offsets=rows,
        timestamps=rows,
        keys=pa.array(keys or [None] * len(values), pa.binary()),
        values=values,
        headers=lambda _: (),
    )


def parsed_by(parser: Parser) -> Parsed:
    """Return the outcome of the lines."""
    return parse(parser, chunk_of(LINES), Output(make_task_config()), ROOMY)[0]


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_outcome_is_never_a_line(what: str) -> None:
    """Wrong types, nulls and layouts become dead letters; the backends read these arrays by their layout."""
    parsed = parsed_by(Wrong(WRONG[what]))

    values, rejected = {cleansed(0), cleansed(1)}, {"no_marker", PARSER_ERROR}
    for outcome in outcomes(parsed, len(LINES)):
        assert outcome in values if isinstance(outcome, bytes) else outcome[0] in rejected
    # A single row has no gaps in memory: asked row by row, that parser is right.
    assert (PARSER_ERROR in parsed.reasons.to_pylist()) == (what != "rows with gaps in memory")
    assert (pa.binary(), 0) == (parsed.values.type, parsed.values.null_count)
    assert parsed.rows.dtype == np.int32


@pytest.mark.parametrize(
    ("what", "detail"),
    [
        ("values with 64-bit offsets", "values is large_binary, not an Arrow array of binary"),
        ("rows of 64 bits", "rows is int64, not a one-dimensional array of int32"),
        ("a null among the values", "values holds 1 nulls"),
        ("rows that are a list", "rows is list, not a one-dimensional array of int32"),
    ],
)
def test_the_dead_letter_says_what_is_wrong(what: str, detail: str) -> None:
    """Whoever wrote the parser finds the breach in the message of the dead letter."""
    parsed = parsed_by(Wrong(WRONG[what]))

    assert any(f"the parser broke its contract: {detail}" in each for each in parsed.details.to_pylist())


def test_a_right_outcome_is_handed_on() -> None:
    """Nothing is copied or asked for twice."""
    parsed = parsed_by(IdcAccessLog())

    assert [cleansed(0), cleansed(1)] == parsed.values.to_pylist()
    assert ["no_marker"] == parsed.reasons.to_pylist()


def event(body: bytes, **headers: str) -> bytes:
    """Write one of Flume's events."""
    out = BytesIO()
    fastavro.schemaless_writer(out, AVRO, {"headers": headers, "body": body})
    return out.getvalue()


def test_lines_keep_flumes_headers() -> None:
    """A line has the wanted headers of its own event, and no others; a header that is missing is null."""
    config = make_task_config(format="flume-avro", flume_headers=("host", "file"))
    values = [event(b"rubbish", host="no"), event(line(0), host="a", other="b"), b"", event(line(1), file="f")]

    parsed, lines = parse(make_parser(config), chunk_of(pa.array(values, pa.binary())), Output(config), ROOMY)

    assert [1, 3] == lines.rows.tolist() == parsed.rows.tolist()
    assert {"host": [b"a", None], "file": [None, b"f"]} == {
        name: column.take(lines.rows).to_pylist() for name, column in lines.headers
    }


@pytest.mark.parametrize("spare", [0, -1])
def test_everything_that_a_line_carries_counts(spare: int) -> None:
    """A record that is too large only with its key and its headers is a reject, with its size."""
    config = make_task_config(format="auto", flume_headers=("host",))
    values = pa.array([line(0), event(line(1), host="h" * 30)], pa.binary())
    size = len(cleansed(1)) + len(b"key") + len("host") + 30 + HEADER_FRAMING

    parsed, lines = parse(make_parser(config), chunk_of(values, [None, b"key"]), Output(config), size + spare)

    assert [cleansed(0), cleansed(1)][: 2 + spare] == lines.values.to_pylist()
    assert [TOO_LARGE][:-spare] == parsed.reasons.to_pylist()
    assert [f"the record has {size} bytes, the sink takes {size - 1}"][:-spare] == parsed.details.to_pylist()


def test_lines_without_headers_are_not_copied() -> None:
    """Where no header is wanted, nobody opens an envelope for it."""
    chunk = chunk_of(LINES)
    _, lines = parse(IdcAccessLog(), chunk, Output(make_task_config(format="flume-avro")), ROOMY)

    assert () == lines.headers
    assert lines.keys is chunk.keys
