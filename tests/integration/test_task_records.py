"""A record on a real Kafka becomes a cleansed line, or a dead letter that keeps everything, with both guarantees."""

from __future__ import annotations

import hashlib
import time

import pytest

from app.embedded.broker import Broker, Cluster
from app.model import Guarantee
from tests import independent
from tests.conftest import Topics
from tests.independent import Headers, Record, Written, cleanse, cleansed, line, produce, values
from tests.integration.tasks import BOTH_GUARANTEES, LARGE, make_pipeline, noise
from tests.samples import SOURCES, access_log, flume_events

MEBIBYTE = 1 << 20


def with_url(url: bytes) -> bytes:
    """Make a valid line with this url."""
    return line(0).replace(b"http://x.cn/0/0", url)


def reasons(dead_letters: list[Record]) -> list[str]:
    """Extract the reasons from the headers."""
    return [dead_letter.error_headers["exception.class.name"] for dead_letter in dead_letters]


@pytest.mark.parametrize("source", SOURCES)
@BOTH_GUARANTEES
def test_an_access_log(
    broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee, source: str
) -> None:
    """Every line of an access log comes out in order as expected, or with its reason."""
    lines, outcomes = access_log(source)
    rejected = [row for row, outcome in enumerate(outcomes) if "|" not in outcome]
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, centre=centre)
    produce(broker.bootstrap, pipeline.source, [Written(raw) for raw in lines])

    pipeline.run()

    assert [outcome.encode() for outcome in outcomes if "|" in outcome] == values(pipeline.cleansed())
    assert [lines[row] for row in rejected] == values(pipeline.dead_letters())
    assert [outcomes[row] for row in rejected] == reasons(pipeline.dead_letters())


@BOTH_GUARANTEES
def test_key_and_create_time_are_kept(
    broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee
) -> None:
    """A cleansed line has the key and the timestamp of its source record. Null and empty keys stay distinct."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, centre=centre)
    keys = [None, b"", b"k", b"\x00\xff|"]
    times = [1_510_464_542_000, 1, 1_510_464_541_999, 2]
    source = [Written(line(n), key, timestamp=at) for n, (key, at) in enumerate(zip(keys, times, strict=True))]
    produce(broker.bootstrap, pipeline.source, source)

    pipeline.run()

    found = [(record.key, record.timestamp, record.value) for record in pipeline.cleansed()]
    assert [(keys[n], times[n], cleansed(n)) for n in range(4)] == found


@BOTH_GUARANTEES
def test_log_append_time_is_kept(broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee) -> None:
    """If the broker sets the timestamps of the source, lines and dead letters have the same timestamps."""
    pipeline = make_pipeline(
        broker.bootstrap, topics, guarantee, source={"message.timestamp.type": "LogAppendTime"}, centre=centre
    )
    before = time.time_ns() // 1_000_000
    produce(broker.bootstrap, pipeline.source, [Written(line(0), timestamp=1), Written(b"rubbish", timestamp=1)])
    after = time.time_ns() // 1_000_000
    appended = [record.timestamp for record in independent.read(broker.bootstrap, pipeline.source)]

    pipeline.run()

    assert before <= appended[0] <= after
    assert appended == [record.timestamp for record in (*pipeline.cleansed(), *pipeline.dead_letters())]


@BOTH_GUARANTEES
def test_dead_letters_keep_everything(
    broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee
) -> None:
    """Tombstones and empty lines become dead letters with reason and origin, and everything else unchanged."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, centre=centre)
    headers: Headers = [("h", b"1"), ("h", b"2"), ("null", None), ("empty", b""), ("binary", b"\xff\x00")]
    pairs = [(None, b"tombstone"), (None, None), (b"", b""), (b"", None), (b"\r\n", b"k"), (b"\n", b"k")]
    source = [Written(*pair, timestamp=1_000 + n, headers=headers if n % 2 else []) for n, pair in enumerate(pairs)]
    produce(broker.bootstrap, pipeline.source, source)

    (receipt,) = pipeline.run().values()

    dead_letters = pipeline.dead_letters()
    added = 6
    unchanged = [Written(one.value, one.key, 0, one.timestamp, one.headers[:-added]) for one in dead_letters]
    assert source == unchanged
    for offset, dead_letter in enumerate(dead_letters):
        error_headers = dead_letter.error_headers
        assert error_headers.pop("exception.message")
        assert error_headers == {
            "stage": "VALUE_CONVERTER",
            "topic": pipeline.source,
            "partition": "0",
            "offset": str(offset),
            "exception.class.name": "empty",
        }
    assert {"empty": 6} == dict(receipt.dead)
    assert [] == pipeline.cleansed()


@BOTH_GUARANTEES
def test_lines_of_a_mebibyte(broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee) -> None:
    """A valid and an invalid line of 1 MiB pass like small ones if the topics accept them."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, source=LARGE, sink=LARGE, dead=LARGE, centre=centre)
    url, bad = noise(MEBIBYTE), noise(MEBIBYTE, seed=2)
    source = [line(0), with_url(url), bad, line(3)]
    produce(broker.bootstrap, pipeline.source, [Written(value) for value in source])

    pipeline.run()

    big = cleansed(0).replace(b"http://x.cn/0/0", url)
    assert [cleansed(0), big, cleansed(3)] == values(pipeline.cleansed())
    assert [bad] == values(pipeline.dead_letters())


@BOTH_GUARANTEES
def test_a_line_that_the_sink_cannot_take(
    broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee
) -> None:
    """A line beyond the sink's max.message.bytes becomes a dead letter `too_large`. Its neighbours are cleansed."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, sink={"max.message.bytes": "20000"}, centre=centre)
    large, fits = with_url(noise(20_000)), with_url(noise(15_000))
    produce(broker.bootstrap, pipeline.source, [Written(value) for value in (line(0), large, fits, line(3))])

    pipeline.run()

    big = cleansed(0).replace(b"http://x.cn/0/0", noise(15_000))
    assert [cleansed(0), big, cleansed(3)] == values(pipeline.cleansed())
    assert [large] == values(pipeline.dead_letters())
    assert ["too_large"] == reasons(pipeline.dead_letters())


@BOTH_GUARANTEES
def test_a_reject_that_the_dead_letter_topic_cannot_take(
    broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee
) -> None:
    """A reject that exceeds the dead-letter topic's limit is cut. Its message contains length and SHA-256."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, dead={"max.message.bytes": "20000"}, centre=centre)
    bad, huge_key = noise(30_000), noise(30_000, seed=2)
    source = [Written(line(0)), Written(bad, b"k"), Written(b"rubbish", huge_key), Written(line(3))]
    produce(broker.bootstrap, pipeline.source, source)

    pipeline.run()

    assert [cleansed(0), cleansed(3)] == values(pipeline.cleansed())
    cut, keyless = pipeline.dead_letters()
    message = cut.error_headers["exception.message"]
    assert "30000 bytes" in message
    assert hashlib.sha256(bad).hexdigest() in message
    assert cut.key == b"k"
    assert cut.value
    assert len(cut.value) > 15_000
    assert bad.startswith(cut.value)
    assert (None, b"rubbish") == (keyless.key, keyless.value)


@BOTH_GUARANTEES
def test_a_reject_that_compresses_is_not_cut(
    broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee
) -> None:
    """A reject that fits the dead-letter topic only when compressed arrives whole."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, dead={"max.message.bytes": "20000"}, centre=centre)
    bad = b"again and " * 10_000
    produce(broker.bootstrap, pipeline.source, [Written(bad)])

    pipeline.run()

    assert [bad] == values(pipeline.dead_letters())


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("format", ["flume-avro", "auto"])
def test_flume_events(broker: Cluster, topics: Topics, centre: Broker | None, format: str, source: str) -> None:  # noqa: A002  # the option's name
    """Lines inside Flume's events are cleansed. Its other events, and invalid ones, become dead letters, unchanged."""
    events = flume_events(source)
    # The headers of the first event, then the length of the body as a two-byte zigzag varint.
    value, body = events[0]
    header, length = value[: -len(body)].removesuffix(_varint(len(body))), _varint(len(line(1)))
    event = header + length + line(1)
    events = [(event, line(1)), *events, (event[:-9], b""), (event, line(1))]
    bad = [(value, body) for value, body in events if cleanse(body) is None]
    pipeline = make_pipeline(broker.bootstrap, topics, format=format, centre=centre)
    produce(broker.bootstrap, pipeline.source, [Written(value) for value, _ in events])

    pipeline.run()

    assert [cleanse(body) for _, body in events if cleanse(body)] == values(pipeline.cleansed())
    assert [value for value, _ in bad] == values(pipeline.dead_letters())
    assert ("envelope" if format == "flume-avro" else "no_marker") == reasons(pipeline.dead_letters())[-1]
    assert len(bad) > 4


def _varint(number: int) -> bytes:
    """Encode a length as Avro does."""
    bits, encoded = number << 1, bytearray()
    while bits > 0x7F:
        encoded.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*encoded, bits])
