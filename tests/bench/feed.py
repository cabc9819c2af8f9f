"""
Feeds the latency benchmark with records at a steady rate.

A record's timestamp is the time it was due, so the measured latency includes any delay of the feed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from app.demo.feed import PRODUCER
from app.demo.lines import GeneratedRecord, Recipe
from tests.bench.job import Job
from tests.bench.report import say

TICK_SECONDS = 0.005
POLL_SECONDS = 0.2
POOL = 100_000


class Pace(NamedTuple):
    """
    How fast to produce.

    Args:
        per_second: records per second.
        max_lag: wait while the lag of the group exceeds this many records; 0 means no limit.
    """

    per_second: float
    max_lag: int = 0


def start(job: Job, pace: Pace, seconds: float) -> BaseProcess:
    """Start `feed` in a separate process and return the process."""
    process = get_context("spawn").Process(target=feed, args=(job, pace, seconds), daemon=True)
    process.start()
    return process


def feed(job: Job, pace: Pace, seconds: float) -> None:
    """Produce to all partitions in turn for `seconds`. A record's timestamp is the time it was due."""
    lines = _lines(job.partitions)
    producer = Producer({**PRODUCER, "bootstrap.servers": job.bootstrap, "linger.ms": 5})
    backlog = _Backlog(job)
    sent, began, latest, fullest = 0, time.time(), 0.0, 0
    while (now := time.time()) < began + seconds:
        latest, fullest = max(latest, now - began - sent / pace.per_second), max(fullest, len(producer))
        if pace.max_lag and backlog.of(sent) > pace.max_lag:
            time.sleep(TICK_SECONDS)
            continue
        for number in range(sent, min(int((now - began) * pace.per_second), sent + POOL)):
            partition, line = next(lines)
            _produce(producer, job.source, line, partition, began + number / pace.per_second)
            sent += 1
        producer.poll(0)
        time.sleep(TICK_SECONDS)
    producer.flush(30)
    if not pace.max_lag:
        say(f"the feed sent {sent:,} records, at most {latest:.2f} s late; at most {fullest:,} waited for the broker")


def _lines(partitions: int) -> Iterator[tuple[int, GeneratedRecord]]:
    recipe = Recipe(partitions, POOL)
    by_turns = zip(*(recipe.lines(partition) for partition in range(partitions)), strict=False)
    return cycle([(partition, line) for turn in by_turns for partition, line in enumerate(turn)])


def _produce(producer: Producer, topic: str, line: GeneratedRecord, partition: int, due: float) -> None:
    while True:
        try:
            return producer.produce(topic, line.value, line.key, partition, None, None, int(1000 * due))
        except BufferError:  # librdkafka's queue is full
            producer.poll(0.01)


class _Backlog:
    """Tracks how far a group lags behind the sent records. Asks Kafka a few times a second."""

    def __init__(self, job: Job) -> None:
        self._places = [TopicPartition(job.source, partition) for partition in range(job.partitions)]
        self._consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": job.group, "log_level": 0})
        self._at_start = self._done()
        self._now, self._looked = 0, 0.0

    def of(self, sent: int) -> int:
        """Return how many of the sent records the group has not committed yet."""
        if time.monotonic() > self._looked + POLL_SECONDS:
            self._now, self._looked = self._done() - self._at_start, time.monotonic()
        return sent - self._now

    def _done(self) -> int:
        return sum(max(place.offset, 0) for place in self._consumer.committed(self._places, timeout=10))
