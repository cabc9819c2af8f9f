"""A record on a real Kafka becomes a cleansed line, or a dead letter that keeps everything; with both guarantees."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

import pytest

from app.embedded.broker import Cluster
from app.model import Guarantee
from tests import independent
from tests.conftest import Topics
from tests.independent import Headers, Record, Written, cleanse, cleansed, line, produce, values
from tests.integration.tasks import BOTH_GUARANTEES, LARGE, make_stage, noise

DATA = Path(__file__).parents[3] / "shared" / "data"
SAMPLE = DATA / "idc-access-log.sample"
EVENTS = DATA / "flume-avro-events.txt"
MEBIBYTE = 1 << 20


def with_url(url: bytes) -> bytes:
    """Make a good line with this url."""
    return line(0).replace(b"http://x.cn/0/0", url)


def reasons(dead_letters: list[Record]) -> list[str]:
    """Return the reasons from the headers."""
    return [dead_letter.told["exception.class.name"] for dead_letter in dead_letters]


@pytest.mark.skipif(not SAMPLE.exists(), reason=f"the real lines are not here: {SAMPLE}")
@BOTH_GUARANTEES
def test_real_lines(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """3,000 lines of a real access log come out in order, as an independent parser cleanses them."""
    lines = SAMPLE.read_bytes().splitlines(keepends=False)
    stage = make_stage(broker.bootstrap, topics, guarantee)
    produce(broker.bootstrap, stage.source, [Written(raw) for raw in lines])

    stage.run()

    assert len(lines) == 3_000
    assert [cleanse(raw) for raw in lines if cleanse(raw) is not None] == values(stage.cleansed())
    assert [raw for raw in lines if cleanse(raw) is None] == values(stage.dead_letters())


@BOTH_GUARANTEES
def test_key_and_create_time_are_kept(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """A cleansed line has the key and the timestamp of its source record; null and empty keys stay distinct."""
    stage = make_stage(broker.bootstrap, topics, guarantee)
    keys = [None, b"", b"k", b"\x00\xff|"]
    times = [1_510_464_542_000, 1, 1_510_464_541_999, 2]
    source = [Written(line(n), key, timestamp=at) for n, (key, at) in enumerate(zip(keys, times, strict=True))]
    produce(broker.bootstrap, stage.source, source)

    stage.run()

    found = [(record.key, record.timestamp, record.value) for record in stage.cleansed()]
    assert [(keys[n], times[n], cleansed(n)) for n in range(4)] == found


@BOTH_GUARANTEES
def test_log_append_time_is_kept(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """If the broker sets the timestamps of the source, lines and dead letters have the same timestamps."""
    stage = make_stage(broker.bootstrap, topics, guarantee, source={"message.timestamp.type": "LogAppendTime"})
    before = time.time() * 1000
    produce(broker.bootstrap, stage.source, [Written(line(0), timestamp=1), Written(b"rubbish", timestamp=1)])
    appended = [record.timestamp for record in independent.read(broker.bootstrap, stage.source)]

    stage.run()

    assert abs(appended[0] - before) < 60_000
    assert appended == [record.timestamp for record in (*stage.cleansed(), *stage.dead_letters())]


@BOTH_GUARANTEES
def test_dead_letters_keep_everything(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """Tombstones and empty lines become dead letters with reason and origin, and everything else unchanged."""
    stage = make_stage(broker.bootstrap, topics, guarantee)
    headers: Headers = [("h", b"1"), ("h", b"2"), ("null", None), ("empty", b""), ("binary", b"\xff\x00")]
    pairs = [(None, b"tombstone"), (None, None), (b"", b""), (b"", None), (b"\r\n", b"k"), (b"\n", b"k")]
    source = [Written(*pair, timestamp=1_000 + n, headers=headers if n % 2 else []) for n, pair in enumerate(pairs)]
    produce(broker.bootstrap, stage.source, source)

    (receipt,) = stage.run().values()

    dead_letters = stage.dead_letters()
    added = 6
    unchanged = [Written(one.value, one.key, 0, one.timestamp, one.headers[:-added]) for one in dead_letters]
    assert source == unchanged
    for offset, dead_letter in enumerate(dead_letters):
        added_headers = dead_letter.told
        assert added_headers.pop("exception.message")
        assert added_headers == {
            "stage": "VALUE_CONVERTER",
            "topic": stage.source,
            "partition": "0",
            "offset": str(offset),
            "exception.class.name": "empty",
        }
    assert {"empty": 6} == dict(receipt.dead)
    assert [] == stage.cleansed()


@BOTH_GUARANTEES
def test_lines_of_a_mebibyte(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """A good and a bad line of 1 MiB pass like small ones if the topics accept them."""
    stage = make_stage(broker.bootstrap, topics, guarantee, source=LARGE, sink=LARGE, dead=LARGE)
    url, bad = noise(MEBIBYTE), noise(MEBIBYTE, seed=2)
    source = [line(0), with_url(url), bad, line(3)]
    produce(broker.bootstrap, stage.source, [Written(value) for value in source])

    stage.run()

    big = cleansed(0).replace(b"http://x.cn/0/0", url)
    assert [cleansed(0), big, cleansed(3)] == values(stage.cleansed())
    assert [bad] == values(stage.dead_letters())


@BOTH_GUARANTEES
def test_a_line_that_the_sink_cannot_take(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """A line that exceeds the sink's max.message.bytes becomes a dead letter `too_large`; its neighbours are cleansed."""
    stage = make_stage(broker.bootstrap, topics, guarantee, sink={"max.message.bytes": "20000"})
    large, fits = with_url(noise(20_000)), with_url(noise(15_000))
    produce(broker.bootstrap, stage.source, [Written(value) for value in (line(0), large, fits, line(3))])

    stage.run()

    big = cleansed(0).replace(b"http://x.cn/0/0", noise(15_000))
    assert [cleansed(0), big, cleansed(3)] == values(stage.cleansed())
    assert [large] == values(stage.dead_letters())
    assert ["too_large"] == reasons(stage.dead_letters())


@BOTH_GUARANTEES
def test_a_reject_that_the_dead_letter_topic_cannot_take(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """A reject that exceeds the dead-letter topic's limit is cut; its message holds length and SHA-256."""
    stage = make_stage(broker.bootstrap, topics, guarantee, dead={"max.message.bytes": "20000"})
    bad, huge_key = noise(30_000), noise(30_000, seed=2)
    source = [Written(line(0)), Written(bad, b"k"), Written(b"rubbish", huge_key), Written(line(3))]
    produce(broker.bootstrap, stage.source, source)

    stage.run()

    assert [cleansed(0), cleansed(3)] == values(stage.cleansed())
    cut, keyless = stage.dead_letters()
    message = cut.told["exception.message"]
    assert "30000 bytes" in message
    assert hashlib.sha256(bad).hexdigest() in message
    assert cut.key == b"k"
    assert cut.value
    assert len(cut.value) > 15_000
    assert bad.startswith(cut.value)
    assert (None, b"rubbish") == (keyless.key, keyless.value)


@BOTH_GUARANTEES
def test_a_reject_that_compresses_is_not_cut(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """A reject that fits the dead-letter topic only when compressed arrives whole."""
    stage = make_stage(broker.bootstrap, topics, guarantee, dead={"max.message.bytes": "20000"})
    bad = b"again and " * 10_000
    produce(broker.bootstrap, stage.source, [Written(bad)])

    stage.run()

    assert [bad] == values(stage.dead_letters())


@pytest.mark.skipif(not EVENTS.exists(), reason=f"the real Flume events are not here: {EVENTS}")
@pytest.mark.parametrize("format", ["flume-avro", "auto"])
def test_flume_events(broker: Cluster, topics: Topics, format: str) -> None:  # noqa: A002  # the name of the option
    """Lines in the envelopes of a real Flume are cleansed; its other events, and broken ones, become unchanged dead letters."""
    real = [bytes.fromhex(code) for code in re.findall(r"^hex (\w+)$", EVENTS.read_text(), re.MULTILINE)]
    # The first event's headers, then the body's length as a zigzag varint of two bytes.
    header, length = real[0][: real[0].index(b"INFO") - 1], len(line(1)) << 1
    event = header + bytes([length & 0x7F | 0x80, length >> 7]) + line(1)
    stage = make_stage(broker.bootstrap, topics, format=format)
    produce(broker.bootstrap, stage.source, [Written(value) for value in (event, *real, event[:-9], event)])

    stage.run()

    assert len(real) == 6
    assert [cleansed(1), cleansed(1)] == values(stage.cleansed())
    assert [*real, event[:-9]] == values(stage.dead_letters())
    assert [*["no_marker"] * 6, "envelope" if format == "flume-avro" else "no_marker"] == reasons(stage.dead_letters())
