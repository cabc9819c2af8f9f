"""What becomes of a record on a real Kafka: cleansed, or a dead letter that keeps everything; in both delivery modes."""

from __future__ import annotations

import hashlib
import random
import re
import time
from pathlib import Path

import pytest

from app.embedded.broker import Cluster
from app.model import Guarantee
from tests import independent
from tests.conftest import Topics
from tests.independent import Headers, Record, Written, cleanse, cleansed, line, produce, values
from tests.integration.tasks import BOTH_GUARANTEES, LARGE, make_stage

DATA = Path(__file__).parents[3] / "shared" / "data"
SAMPLE = DATA / "idc-access-log.sample"
EVENTS = DATA / "flume-avro-events.txt"
MEBIBYTE = 1 << 20


def with_url(url: bytes) -> bytes:
    """Make a good line with this url."""
    return line(0).replace(b"http://x.cn/0/0", url)


def noise(size: int, seed: int = 1) -> bytes:
    """Make printable bytes that no compression makes much smaller."""
    return bytes(random.Random(seed).choices(range(0x30, 0x7B), k=size))


def reasons(dead_letters: list[Record]) -> list[str]:
    """Take the reasons out of the headers."""
    return [dead_letter.error_headers["exception.class.name"] for dead_letter in dead_letters]


@pytest.mark.skipif(not SAMPLE.exists(), reason=f"the real lines are not here: {SAMPLE}")
@BOTH_GUARANTEES
def test_real_lines(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """3,000 lines of a real access log come out as an independent split of them says, in order."""
    lines = SAMPLE.read_bytes().splitlines(keepends=False)
    stage = make_stage(broker.bootstrap, topics, guarantee)
    produce(broker.bootstrap, stage.source, [Written(raw) for raw in lines])

    stage.run()

    assert len(lines) == 3_000
    assert [cleanse(raw) for raw in lines if cleanse(raw) is not None] == values(stage.cleansed())
    assert [raw for raw in lines if cleanse(raw) is None] == values(stage.dead_letters())


@BOTH_GUARANTEES
def test_key_and_create_time_are_kept(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """A cleansed line has the key and the timestamp of its source record; null and empty keys stay apart."""
    stage = make_stage(broker.bootstrap, topics, guarantee)
    keys = [None, b"", b"k", b"\x00\xff|"]
    times = [1_510_464_542_000, 1, 1_510_464_541_999, 2]
    source = [Written(line(n), key, timestamp=at) for n, (key, at) in enumerate(zip(keys, times, strict=True))]
    produce(broker.bootstrap, stage.source, source)

    stage.run()

    told = [(record.key, record.timestamp, record.value) for record in stage.cleansed()]
    assert [(keys[n], times[n], cleansed(n)) for n in range(4)] == told


@BOTH_GUARANTEES
def test_log_append_time_is_kept(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """Where the source's broker sets the time, lines and dead letters carry that time."""
    stage = make_stage(broker.bootstrap, topics, guarantee, source={"message.timestamp.type": "LogAppendTime"})
    before = time.time() * 1000
    produce(broker.bootstrap, stage.source, [Written(line(0), timestamp=1), Written(b"rubbish", timestamp=1)])
    appended = [record.timestamp for record in independent.read(broker.bootstrap, stage.source)]

    stage.run()

    assert abs(appended[0] - before) < 60_000
    assert appended == [record.timestamp for record in (*stage.cleansed(), *stage.dead_letters())]


@BOTH_GUARANTEES
def test_dead_letters_keep_everything(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """Tombstones and empty lines become dead letters with reason, origin, and everything else as it was."""
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
        error_headers = dead_letter.error_headers
        assert error_headers.pop("exception.message")
        assert error_headers == {
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
    """A good and a bad line of 1 MiB pass like small ones where the topics take them."""
    stage = make_stage(broker.bootstrap, topics, guarantee, source=LARGE, sink=LARGE, dead=LARGE)
    url, bad = noise(MEBIBYTE), noise(MEBIBYTE, seed=2)
    source = [line(0), with_url(url), bad, line(3)]
    produce(broker.bootstrap, stage.source, [Written(value) for value in source])

    stage.run()

    big = cleansed(0).replace(b"http://x.cn/0/0", url)
    assert [cleansed(0), big, cleansed(3)] == values(stage.cleansed())
    assert [bad] == values(stage.dead_letters())


@BOTH_GUARANTEES
def test_what_the_sink_cannot_take(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """A line beyond the sink's max.message.bytes is a dead letter `too_large`; its neighbours flow."""
    stage = make_stage(broker.bootstrap, topics, guarantee, sink={"max.message.bytes": "20000"})
    large, fits = with_url(noise(20_000)), with_url(noise(15_000))
    produce(broker.bootstrap, stage.source, [Written(value) for value in (line(0), large, fits, line(3))])

    stage.run()

    big = cleansed(0).replace(b"http://x.cn/0/0", noise(15_000))
    assert [cleansed(0), big, cleansed(3)] == values(stage.cleansed())
    assert [large] == values(stage.dead_letters())
    assert ["too_large"] == reasons(stage.dead_letters())


@BOTH_GUARANTEES
def test_what_the_dead_letters_cannot_take(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """A reject beyond the dead-letter topic's limit is cut; its message tells length and SHA-256, and the flow goes on."""
    stage = make_stage(broker.bootstrap, topics, guarantee, dead={"max.message.bytes": "20000"})
    bad, huge_key = noise(30_000), noise(30_000, seed=2)
    source = [Written(line(0)), Written(bad, b"k"), Written(b"rubbish", huge_key), Written(line(3))]
    produce(broker.bootstrap, stage.source, source)

    stage.run()

    assert [cleansed(0), cleansed(3)] == values(stage.cleansed())
    cut, keyless = stage.dead_letters()
    message = cut.error_headers["exception.message"]
    assert "30000 bytes" in message
    assert hashlib.sha256(bad).hexdigest() in message
    assert cut.key == b"k"
    assert cut.value
    assert len(cut.value) > 15_000
    assert bad.startswith(cut.value)
    assert (None, b"rubbish") == (keyless.key, keyless.value)


@BOTH_GUARANTEES
def test_what_compresses_is_not_cut(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """A reject that the dead-letter topic takes only compressed arrives whole."""
    stage = make_stage(broker.bootstrap, topics, guarantee, dead={"max.message.bytes": "20000"})
    bad = b"again and " * 10_000
    produce(broker.bootstrap, stage.source, [Written(bad)])

    stage.run()

    assert [bad] == values(stage.dead_letters())


@pytest.mark.skipif(not EVENTS.exists(), reason=f"the real Flume events are not here: {EVENTS}")
@pytest.mark.parametrize("format", ["flume-avro", "auto"])
def test_flume_events(broker: Cluster, topics: Topics, format: str) -> None:  # noqa: A002  # what the option is called
    """Lines in the envelopes of a real Flume are cleansed; its other events, and broken ones, are dead letters as they were."""
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
