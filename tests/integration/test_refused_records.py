"""A record that a real Kafka refuses becomes a dead letter, or blocks its partition if that is refused too."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.embedded.broker import Cluster
from app.kafka.backend import Backend
from app.model import Guarantee, Outcome, Partition, Receipt
from tests.conftest import Topics
from tests.independent import Record, Written, cleansed, line, produce, values
from tests.integration.service import Winnow, settings
from tests.integration.tasks import BOTH_BACKENDS, BOTH_GUARANTEES, LARGE, Pipeline, alter, make_pipeline, noise

pytestmark = pytest.mark.usefixtures("patient")

HOUR = 3_600_000
ANY_TIME = {"message.timestamp.after.max.ms": str(100 * HOUR)}
HUGE = {"max.message.bytes": str(8 << 20)}


def now() -> int:
    """Return milliseconds since the epoch."""
    return int(time.time() * 1000)


def check_one_refused(pipeline: Pipeline, receipt: Receipt, record: Written, words: str) -> None:
    """Require that the second of three records is a dead letter with its reason, and that the others are cleansed."""
    assert [cleansed(0), cleansed(2)] == list(dict.fromkeys(values(pipeline.cleansed())))
    (dead_letter,) = pipeline.dead_letters()
    headers = dead_letter.error_headers
    assert (record.key, record.value) == (dead_letter.key, dead_letter.value)
    assert ("refused", str(record.timestamp)) == (headers["exception.class.name"], headers["timestamp"])
    assert words in headers["exception.message"]
    assert abs(dead_letter.timestamp - now()) < HOUR
    assert (True, {"refused": 1}, Outcome.DONE) == (receipt.balances, receipt.dead, receipt.outcome)


@BOTH_GUARANTEES
def test_a_reject_beyond_the_limit_before_compression(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """5 MB that would compress well exceed librdkafka's limit, so they are cut."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, source=HUGE)
    produce(broker.bootstrap, pipeline.source, [Written(line(0)), Written(b"again and " * 500_000), Written(line(2))])

    (receipt,) = pipeline.run().values()

    assert [cleansed(0), cleansed(2)] == values(pipeline.cleansed())
    (dead_letter,) = pipeline.dead_letters()
    assert "cut from 5000000 bytes" in dead_letter.error_headers["exception.message"]
    assert (Outcome.DONE, 0) == (receipt.outcome, receipt.reopened)


@pytest.mark.parametrize("where", ["producer", "topic"])
def test_a_reject_that_is_stored_uncompressed(broker: Cluster, topics: Topics, where: str) -> None:
    """2 MB are cut if the producer does not compress them, or if the broker decompresses them."""
    dead = {"compression.type": "uncompressed"} if where == "topic" else {}
    pipeline = make_pipeline(broker.bootstrap, topics, source=LARGE, dead=dead)
    if where == "producer":
        pipeline.changes["kafka"] = {"bootstrap.servers": broker.bootstrap, "compression.type": "none"}
    produce(broker.bootstrap, pipeline.source, [Written(line(0)), Written(b"again and " * 200_000), Written(line(2))])

    (receipt,) = pipeline.run().values()

    assert [cleansed(0), cleansed(2)] == values(pipeline.cleansed())
    (dead_letter,) = pipeline.dead_letters()
    assert "cut from 2000000 bytes" in dead_letter.error_headers["exception.message"]
    assert (Outcome.DONE, 0) == (receipt.outcome, receipt.reopened)


@BOTH_GUARANTEES
@pytest.mark.parametrize(("side", "hours"), [("after", 2), ("before", -2)])
def test_a_timestamp_that_the_sink_refuses(
    broker: Cluster, topics: Topics, guarantee: Guarantee, side: str, hours: int
) -> None:
    """Kafka 4 rejects timestamps more than an hour in the future, and a topic may also limit the past."""
    sink = {"message.timestamp.before.max.ms": str(HOUR)} if side == "before" else {}
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, source=ANY_TIME, sink=sink, dead=sink)
    times = [now(), now() + hours * HOUR, now()]
    records = [Written(line(n), b"k", timestamp=at) for n, at in enumerate(times)]
    produce(broker.bootstrap, pipeline.source, records)

    (receipt,) = pipeline.run().values()

    check_one_refused(pipeline, receipt, records[1], f"message.timestamp.{side}.max.ms=3600000")
    assert 0 == receipt.reopened


def test_a_reject_whose_timestamp_the_dead_letter_topic_refuses(broker: Cluster, topics: Topics) -> None:
    """Such a reject keeps its reason and gets the time of writing. Its own timestamp becomes a header."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=ANY_TIME)
    future = now() + 2 * HOUR
    produce(
        broker.bootstrap, pipeline.source, [Written(b"rubbish", timestamp=future), Written(b"rubbish", timestamp=7)]
    )

    (receipt,) = pipeline.run().values()

    first, second = pipeline.dead_letters()
    assert abs(first.timestamp - now()) < HOUR
    assert str(future) == first.error_headers["timestamp"]
    assert (7, None) == (second.timestamp, second.error_headers.get("timestamp"))
    assert ({"no_marker": 2}, 0) == (receipt.dead, receipt.reopened)


@BOTH_GUARANTEES
def test_a_compacted_sink(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """A line without a key becomes a dead letter; lines with a key pass, even an empty one."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, sink={"cleanup.policy": "compact"})
    records = [Written(line(n), key, timestamp=now()) for n, key in enumerate([b"k", None, b""])]
    produce(broker.bootstrap, pipeline.source, records)

    (receipt,) = pipeline.run().values()

    check_one_refused(pipeline, receipt, records[1], "the line has no key; the sink's cleanup.policy is compact")
    assert 0 == receipt.reopened


UNKNOWN: Mapping[str, tuple[Mapping[str, object], str]] = {
    "size": ({"max_message_bytes": 3_000}, "Message size too large"),
    "future": ({"message_timestamp_after_max_ms": 1_000}, "Invalid timestamp"),
}
"""How the sink changes after the plan was made, and the broker's message."""


@BOTH_BACKENDS
@BOTH_GUARANTEES
@pytest.mark.parametrize("what", UNKNOWN)
def test_a_record_that_is_refused_for_an_unknown_reason(
    broker: Cluster, topics: Topics, guarantee: Guarantee, backend: Backend, what: str
) -> None:
    """If only the broker knows the reason, the record is found among a thousand, and only it is a dead letter."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, source=2, sink=2)
    pipeline.backend = backend
    pipeline.keep_plan()
    settings, words = UNKNOWN[what]
    alter(broker.bootstrap, pipeline.sink, **settings)
    bad = {
        "size": Written(line(613).replace(b"http://x.cn/", noise(5_000)), b"k", timestamp=now()),
        "future": Written(line(613), b"k", timestamp=now() + HOUR // 2),
    }[what]
    records = [Written(line(n), b"k", timestamp=now()) for n in range(1_000)]
    records[613] = bad
    # In small batches, because the size limit applies to whole batches.
    pipeline.changes["kafka"] = {"bootstrap.servers": broker.bootstrap, "batch.size": "2000"}
    produce(broker.bootstrap, pipeline.source, [*records, Written(line(5), b"k", 1, now())])

    first, second = pipeline.run().values()

    good = [cleansed(n) for n in range(1_000) if n != 613]
    found = [record.value for record in pipeline.cleansed() if record.partition == 0]
    assert good == found if guarantee is Guarantee.EXACTLY_ONCE else set(good) == set(found)
    (dead_letter,) = pipeline.dead_letters()
    assert bad[:2] == (dead_letter.value, dead_letter.key)
    headers = dead_letter.error_headers
    assert ("refused", "613") == (headers["exception.class.name"], headers["offset"])
    assert words in headers["exception.message"]
    assert (True, 1_000, {"refused": 1}, Outcome.DONE) == (
        first.balances,
        first.records,
        first.dead,
        first.outcome,
    )
    assert (Outcome.DONE, 1) == (second.outcome, second.out)


def test_many_refused_records_in_a_row(broker: Cluster, topics: Topics) -> None:
    """Many refused records in a row make steady progress, whatever surrounds them."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=ANY_TIME)
    pipeline.keep_plan()
    alter(broker.bootstrap, pipeline.sink, message_timestamp_after_max_ms=1_000)
    bad = range(100, 120)
    produce(
        broker.bootstrap,
        pipeline.source,
        [Written(line(n), b"k", timestamp=now() + (HOUR // 2 if n in bad else 0)) for n in range(300)],
    )

    (receipt,) = pipeline.run().values()

    assert [cleansed(n) for n in range(300) if n not in bad] == values(pipeline.cleansed())
    assert [line(n) for n in bad] == values(pipeline.dead_letters())
    assert ({"refused": len(bad)}, Outcome.DONE) == (receipt.dead, receipt.outcome)


TINY = {"max.message.bytes": "100"}
"""Not even a dead letter's headers fit here."""


@BOTH_GUARANTEES
def test_a_record_that_the_dead_letter_topic_refuses_too(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """The partition is blocked with the broker's message and a cure until the topic is fixed. Others continue."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, source=2, sink=2, dead=TINY)
    produce(broker.bootstrap, pipeline.source, [Written(each) for each in (line(0), b"rubbish", line(2))])
    produce(broker.bootstrap, pipeline.source, [Written(line(n), partition=1) for n in range(3, 9)])

    receipts = pipeline.run()

    blocked, other = (receipts[Partition(pipeline.source, number)] for number in (0, 1))
    assert (Outcome.BLOCKED, 1, {}) == (blocked.outcome, blocked.end, blocked.dead)
    assert "Message size too large" in blocked.error
    assert "max.message.bytes" in blocked.cure
    assert "winnow offsets reset" in blocked.cure
    assert (Outcome.DONE, 6) == (other.outcome, other.out)
    alter(broker.bootstrap, pipeline.dead, max_message_bytes=1_000_000)

    pipeline.run()

    assert Counter(cleansed(n) for n in (0, *range(2, 9))).keys() == set(values(pipeline.cleansed()))
    assert [b"rubbish"] == values(pipeline.dead_letters())
    assert [] == [each for each in pipeline.lag().values() if each]


def reasons(records: list[Record]) -> list[str]:
    return [record.error_headers["exception.class.name"] for record in records]


def test_until_end_ends_whatever_is_refused(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """`--until-end` exits with 1 and names the blocked partition, and with 0 once the topic is fixed."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=2, sink=2, dead=TINY)
    produce(broker.bootstrap, pipeline.source, [Written(each) for each in (line(0), b"rubbish", line(2))])
    produce(broker.bootstrap, pipeline.source, [Written(line(n), partition=1) for n in range(3, 9)])
    config = settings(
        broker.bootstrap, group=pipeline.group, sources=[pipeline.source], sink=pipeline.sink, dead=pipeline.dead
    )

    with Winnow(config, tmp_path, "--until-end") as winnow:
        assert 1 == winnow.code()
        blocked, *_ = winnow.logged("partition_blocked")

    assert 0 == blocked["partition"]
    assert "Message size too large" in str(blocked)
    assert "winnow offsets reset" in str(blocked)
    assert Counter(map(cleansed, (0, *range(3, 9)))) == Counter(values(pipeline.cleansed()))
    alter(broker.bootstrap, pipeline.dead, max_message_bytes=1_000_000)

    with Winnow(config, tmp_path, "--until-end") as winnow:
        assert 0 == winnow.code()

    assert Counter(map(cleansed, (0, *range(2, 9)))) == Counter(values(pipeline.cleansed()))
    assert ["no_marker"] == reasons(pipeline.dead_letters())
