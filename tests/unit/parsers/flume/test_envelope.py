"""Lines in Flume's Avro events."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from io import BytesIO
from itertools import pairwise

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.compiled import kernels
from parsers.contract import Parsed, Parser
from parsers.errors import ParserOptionError
from parsers.flume import envelope
from parsers.flume.envelope import wrap
from parsers.flume.event import Kind
from parsers.idc_access_log import IdcAccessLog
from parsers.testing import batch, outcomes
from tests.data.make import EVENT, encoded

HUGE = b"\xfe" + b"\xff" * 7 + b"\x7f"  # 2^62 - 1, the largest number of nine bytes
LEAST = b"\xff" * 8 + b"\x7f"  # -2^62
TEN_BYTES = b"\xfe" + b"\xff" * 8 + b"\x01"  # 2^63 - 1


class Echo:
    """A parser whose cleansed line is the line itself; lines of `bad` and empty ones are rejects."""

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        values = lines.to_pylist()
        good = [row for row, value in enumerate(values) if value and value != b"bad"]
        bad = sorted({*range(len(values))} - {*good})
        return Parsed(
            pa.array([values[row] for row in good], pa.binary()),
            np.array(good, np.int32),
            np.array(bad, np.int32),
            pa.array(["empty" if values[row] != b"bad" else "bad" for row in bad], pa.string()),
            pa.array([repr(values[row]) for row in bad], pa.string()),
        )


def event(body: bytes, /, **headers: str) -> bytes:
    """Encode an event as Flume does."""
    return encoded({"headers": headers, "body": body})


def opened(format: str, *values: bytes | None) -> list[object]:  # noqa: A002
    """Return the results for the values, on which both engines must agree."""
    compiled, plain = (
        outcomes(wrap(Echo(), format, engine=engine).parse(batch(values)), len(values))
        for engine in ("compiled", "plain")
    )
    assert compiled == plain
    return list(compiled)


def test_flumes_events_are_opened(flume_events: list[tuple[bytes, bytes]]) -> None:
    """An event as Flume writes it, with any shape of headers, yields its body."""
    values = [value for value, _ in flume_events]
    expected = [body or ("empty", "b''") for _, body in flume_events]

    assert len(values) >= 6
    assert expected == opened("flume-avro", *values) == opened("auto", *values)


@settings(max_examples=93, deadline=None)
@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=200), st.dictionaries(st.text(max_size=9), st.text(max_size=9))))
)
def test_every_event_is_opened(events: list[tuple[bytes, dict[str, str]]]) -> None:
    """Every event that fastavro writes is opened, with any headers."""
    values = [event(body, **headers) for body, headers in events]
    expected = [body if body != b"bad" else ("bad", repr(body)) for body, _ in events]

    assert expected == opened("flume-avro", *values) == opened("auto", *values)


@settings(max_examples=250, deadline=None)
@given(
    st.binary(max_size=40)
    | st.tuples(
        st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2), st.integers(), st.binary(max_size=2)
    ).map(lambda drawn: _damaged(event(b"body", **drawn[0]), drawn[1], drawn[2]))
)
def test_only_what_fastavro_reads_is_opened(value: bytes) -> None:
    """Only a value that fastavro reads to its end is opened, with the same body; no other value raises."""
    found = opened("flume-avro", value)[0]
    if isinstance(found, tuple) and found[0] == "envelope":
        return
    source = BytesIO(value)

    body = fastavro.schemaless_reader(source, EVENT, None)["body"] if value else b""  # type: ignore[index, call-overload]

    assert source.read() == b""
    assert found == (body if body not in (b"", b"bad") else ("empty" if not body else "bad", repr(body)))


def _damaged(value: bytes, place: int, piece: bytes) -> bytes:
    at = place % (len(value) + 1)
    return value[:at] + piece + value[at + 1 :]


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (event(b"x", k="v")[:-1], "it is truncated"),
        (event(b"x", k="v") + b"\n", "extra bytes follow it"),
        (b"\x02\x02k\x02\xff\x00\x00", "headers or lengths are invalid"),  # a header that is not UTF-8
        (b"\x02\x02\xff\x00\x00\x00", "headers or lengths are invalid"),  # a header whose name is not UTF-8
        (b"\x02\x06\xed\xa0\x80\x00\x00\x00", "headers or lengths are invalid"),  # a surrogate is not UTF-8
        (b"\x02\x01", "headers or lengths are invalid"),  # a header of -1 bytes
        (b"\x00\x01", "headers or lengths are invalid"),  # a body of -1 bytes
        (b"\x00\x01abc", "headers or lengths are invalid"),
        (b"\x00" + LEAST, "headers or lengths are invalid"),
        (HUGE, "it is truncated"),
        (HUGE + b"\x00" * 50, "it is truncated"),  # claims 2^62 - 1 empty headers and has 25
        (LEAST + b"\x64" + b"\x00" * 50, "it is truncated"),
        (b"\x02" + HUGE + b"k", "it is truncated"),
        (b"\x00" + HUGE + b"k", "it is truncated"),
        (b"\x01" + HUGE, "it is truncated"),
        (b"\x01", "it is truncated"),
        (b"\xff" * 10 + b"\x00", "headers or lengths are invalid"),  # a number of more than 64 bits
        (b"\x80" * 30, "headers or lengths are invalid"),
        (b"\x80" * 9 + b"\x02" + b"\x02x", "headers or lengths are invalid"),  # 2^64 headers are not none
        (b"\x00" + b"\x82" + b"\x80" * 8 + b"\x00x", "headers or lengths are invalid"),  # 1, in ten bytes
        (TEN_BYTES + b"\x00" * 50, "headers or lengths are invalid"),
        (b"\x00" + TEN_BYTES + b"k", "headers or lengths are invalid"),
        (b"\x80" * 8, "it is truncated"),
        (b"\x80" * 9, "headers or lengths are invalid"),
    ],
)
def test_a_value_that_is_not_an_event_is_rejected(value: bytes, detail: str) -> None:
    """A value that is not exactly one event is rejected as `envelope`, whatever lengths it claims."""
    found = opened("flume-avro", value)[0]

    assert found[0] == "envelope"  # type: ignore[index]
    assert detail in found[1]  # type: ignore[index]


@pytest.mark.parametrize("engine", ["compiled", "plain"])
@pytest.mark.parametrize("promise", [HUGE, b"\x00" + HUGE, b"\x02" + HUGE, LEAST + HUGE, b"\x01" + HUGE])
def test_a_false_length_allocates_nothing(promise: bytes, engine: str) -> None:
    """A value that claims 2^62 bytes or headers takes memory only for the bytes that it has."""
    parser, values = wrap(Echo(), "flume-avro", engine=engine), batch([promise + b"k"])
    parser.parse(values)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        parser.parse(values)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak + pa.total_allocated_bytes() - before < 100_000


@pytest.mark.parametrize(
    "headers",
    [
        b"\x03\x10\x02k\x02v\x02l\x02w" + b"\x02\x02m\x02x" + b"\x80\x00",
        b"\x01\x08\x02k\x02v\x00",
        b"\x04\x02k\x02v\x02k\x02w\x00",
        b"\x82" + b"\x80" * 7 + b"\x00" + b"\x02k\x02v\x00",
    ],
    ids=["several blocks", "a block with its size", "a name twice", "a number of nine bytes"],
)
def test_any_encoding_of_headers_is_read(headers: bytes) -> None:
    """Every encoding of a map that Avro allows is read."""
    assert [b"line"] == opened("flume-avro", headers + b"\x08line")


@pytest.mark.parametrize("size", [b"\x00", b"\x06", b"\x0a", b"\x01", HUGE, LEAST])
def test_the_size_of_a_block_is_ignored(size: bytes) -> None:
    """A size before a block of headers is only for readers that skip the block."""
    assert [b"x"] == opened("flume-avro", b"\x01" + size + b"\x02k\x02v\x00\x02x")


NUMBERS = st.sampled_from([0, 1, 2, 3, -1, -2, -3, 9, 2**62 - 1, -(2**62), 2**62, 2**63 - 1, -(2**63), 2**64])
TEXTS = st.sampled_from([b"", b"k", b"\xff", b"\x80", "é".encode(), b"value", b"\x00", b"\xed\xa0\x80"])


def number(value: int, padding: int = 0) -> bytes:
    """Encode a number as Avro does, with redundant bytes at its end."""
    bits, out = (-2 * value - 1 if value < 0 else 2 * value), []
    while bits > 127:
        out.append(bits & 127 | 128)
        bits >>= 7
    return bytes([*out, bits | 128] + [128] * (padding - 1) + [0]) if padding else bytes([*out, bits])


PIECES = st.builds(number, NUMBERS, st.sampled_from([0, 0, 0, 1, 8])) | TEXTS.map(lambda text: number(len(text)) + text)


@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES, max_size=9).map(b"".join))
def test_engines_agree_on_event_like_values(value: bytes) -> None:
    """Both engines find the same line, or the same fault, in numbers and texts in any order."""
    opened("flume-avro", value)
    opened("auto", value)


def test_auto_opens_events_and_keeps_lines() -> None:
    """With `auto` an event is opened and anything else is a line, in the same batch."""
    values = [event(b"one", h="v"), b"two", event(b"three")[:-1], None, b"", event(b""), event(b"bad"), b"bad"]

    empty, nothing, bad = ("empty", "b''"), ("empty", "None"), ("bad", "b'bad'")
    assert [b"one", b"two", b"\x00\x0athre", nothing, empty, empty, bad, bad] == opened("auto", *values)


def test_auto_does_not_copy_lines() -> None:
    """With `auto`, a batch without events reaches the parser uncopied."""
    seen: list[pa.BinaryArray] = []
    lines = batch([b"a", None, b"<<<!>>>"])

    class Spy(Echo):
        def parse(self, lines: pa.BinaryArray) -> Parsed:
            seen.append(lines)
            return super().parse(lines)

    wrap(Spy(), "auto").parse(lines)

    assert seen[0] is lines


def test_nulls_and_empty_values_are_empty() -> None:
    """The parser rejects null and empty values as `empty`; the envelope passes them on."""
    values = [None, b"", b"\x00", event(b"x")]

    found = opened("flume-avro", *values)

    assert [("empty", "None"), ("empty", "b''"), b"x"] == [found[0], found[1], found[3]]
    assert found[2][0] == "envelope"  # type: ignore[index]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([None, b"", b"raw", event(b"x"), event(b"bad"), event(b"")])), st.integers(0, 5))
def test_rows_keep_their_numbers(values: list[bytes | None], skipped: int) -> None:
    """Every row keeps its number in the batch, ascending, also in a slice."""
    lines = batch([b"x", *values]).slice(1).slice(skipped)

    for engine in ("compiled", "plain"):
        parsed = wrap(Echo(), "flume-avro", engine=engine).parse(lines)

        assert outcomes(parsed, len(lines)) == opened("flume-avro", *values[skipped:])
        assert all(a < b for a, b in pairwise(parsed.reject_rows.tolist()))
        assert parsed.rows.dtype == parsed.reject_rows.dtype == np.int32


def test_raw_is_the_parser_itself() -> None:
    """With `raw` there is no envelope."""
    parser = Echo()

    assert wrap(parser, "raw") is parser


def test_an_unknown_format_is_named() -> None:
    """The error suggests the nearest format."""
    with pytest.raises(ParserOptionError, match="did you mean 'flume-avro'"):
        wrap(Echo(), "flume")


def test_the_kernel_numbers_kinds_as_python_does() -> None:
    """The kernel and the error messages number the kinds of values alike."""
    assert [kernels.EVENT, kernels.TRUNCATED, kernels.LEFTOVER, kernels.MALFORMED] == [*Kind]
    assert {*Kind} - {Kind.EVENT} == {*envelope._DETAILS}


def test_lines_in_events_are_cleansed(line: Callable[..., bytes]) -> None:
    """The result for an event is the result for the line in it."""
    parser: Parser = IdcAccessLog()
    lines = [line(), line(srcport=b"x"), b""]

    expected = outcomes(parser.parse(batch(lines)), 3)

    assert expected == outcomes(wrap(parser, "flume-avro").parse(batch([event(one, h="v") for one in lines])), 3)


def columns(names: list[str], *values: bytes | None) -> list[list[bytes | None]]:
    """Return the columns of headers, on which both engines must agree."""
    compiled, plain = (
        [column.to_pylist() for column in envelope.headers(batch(values), names, engine=engine)]
        for engine in ("compiled", "plain")
    )
    assert compiled == plain
    return compiled


def test_headers_are_columns() -> None:
    """A header is null if an event lacks it, or if the value is not an event. An empty one is not null."""
    events = event(b"x", host="a", file=""), event(b"y", host="bb" * 20), event(b"z", hos="c", hosts="d")

    assert [[b"a", b"bb" * 20, None, None, None, None], [b"", None, None, None, None, None]] == columns(
        ["host", "file"], *events, None, b"", b"no event"
    )


def test_a_header_of_any_name() -> None:
    """A name may be empty, long or not ASCII. If it occurs twice, its last value counts."""
    names = ["", "n" * 300, "名"]
    twice = b"\x04\x02h\x02a\x02h\x02b\x00\x02x"

    assert [[b"1"], [b"2"], [b"3"]] == columns(names, event(b"x", **dict(zip(names, "123", strict=True))))
    assert [[b"b"]] == columns(["h"], twice)


def test_headers_in_blocks_of_a_known_size() -> None:
    """A map may have several blocks, and a block may have a size."""
    blocks = b"\x01\x08\x02a\x021\x02\x02b\x022\x00\x02x"

    assert ["x"] == [str(value, "ascii") for value in opened("flume-avro", blocks) if isinstance(value, bytes)]
    assert [[b"1"], [b"2"]] == columns(["a", "b"], blocks)


def test_headers_of_a_slice(flume_events: list[tuple[bytes, bytes]]) -> None:
    """A slice of a batch has the headers of its own rows, as fastavro reads them."""
    values = [value for value, _ in flume_events]
    read: list[dict[str, dict[str, str]]] = [fastavro.schemaless_reader(BytesIO(each), EVENT, None) for each in values]  # type: ignore[misc]
    names = sorted({name for each in read for name in each["headers"]})
    expected = [[(each["headers"].get(name) or "").encode() for each in read[2:]] for name in names]
    part = batch([None, *values]).slice(3)

    for engine in ("compiled", "plain"):
        found = envelope.headers(part, names, engine=engine)
        assert expected == [[each or b"" for each in column.to_pylist()] for column in found]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40), st.builds(event, st.binary(), a=st.text(), b=st.text()))))
def test_both_engines_find_the_same_headers(values: list[bytes | None]) -> None:
    """Whatever the values are, the engines agree, and an event's headers are found."""
    assert 2 == len(columns(["a", "b"], *values))
