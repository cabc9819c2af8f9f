"""Sends generated lines to Kafka at once, or at a steady rate to try a deployment, also to a Flume agent's socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle, islice

import click
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from app.demo.lines import GeneratedRecord, Recipe

TICK_SECONDS = 0.1
ENDLESS = 1 << 40
CONNECT_SECONDS = 30
FLUSH_SECONDS = 120
TURN = 2_000
"""The number of records that a partition gets before the next one."""
QUEUED = 198_000
PRODUCER: dict[str, str | int | float | bool] = {
    "log_level": 0,
    "compression.type": "lz4",
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": QUEUED + TURN,
    "delivery.report.only.error": True,
}

Slices = Iterator[tuple[int, list[GeneratedRecord]]]
"""Partitions, each with its next records."""


@click.command()
@click.option("--bootstrap", help="Kafka's bootstrap servers.")
@click.option("--topic", help="An existing topic to produce to.")
@click.option("--flume", metavar="HOST:PORT", help="A Flume agent's netcat source, instead of Kafka.")
@click.option("--rate", type=click.IntRange(1), default=2_000, show_default=True, help="Lines per second.")
@click.option("--seconds", default=float("inf"), help="Stop after this time; by default never.")
def main(bootstrap: str | None, topic: str | None, flume: str | None, rate: int, seconds: float) -> None:
    """Write varied raw lines, 1 % of them bad, with the current time."""
    if flume:
        to_flume(flume, rate, seconds)
    elif bootstrap and topic:
        to_kafka(bootstrap, topic, rate, seconds)
    else:
        raise click.UsageError("give --bootstrap and --topic, or --flume")


def load(bootstrap: str, topic: str, recipe: Recipe, *, progress: Callable[[int], object] = lambda _: None) -> None:
    """Produce a recipe's records to a new topic in order, so that each offset equals the sequence number."""
    producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap})
    _send(producer, topic, bootstrap, _by_turns(recipe, progress), stamped=True)


def _by_turns(recipe: Recipe, progress: Callable[[int], object]) -> Slices:
    """Yield slices of the partitions in turn, so that all of them grow together; report the size of each."""
    sources = [recipe.lines(partition) for partition in range(recipe.partitions)]
    for _ in range(0, recipe.size(0), TURN):
        for partition, source in enumerate(sources):
            lines = list(islice(source, TURN))
            yield partition, lines
            progress(len(lines))


def _send(producer: Producer, topic: str, bootstrap: str, slices: Slices, *, stamped: bool) -> None:
    """Produce records with their timestamps or the current time, and wait until Kafka has all of them."""
    failures: list[KafkaError] = []

    def failed(error: KafkaError | None, _: Message) -> None:
        if error:
            failures.append(error)

    for partition, lines in slices:
        for begin in range(0, len(lines), TURN):
            while len(producer) > QUEUED:
                producer.poll(0.05)
            for key, value, timestamp, _, _ in lines[begin : begin + TURN]:
                at = timestamp if stamped else 0
                producer.produce(topic, value, key, partition, on_delivery=failed, timestamp=at)
        producer.poll(0)
    if lost := producer.flush(FLUSH_SECONDS) + len(failures):
        why = failures[0].str() if failures else f"no response within {FLUSH_SECONDS} s"
        raise click.ClickException(f"{lost} lines did not reach {topic} at {bootstrap}: {why}")


def to_kafka(bootstrap: str, topic: str, rate: int, seconds: float) -> None:
    producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap})
    try:
        partitions = len(producer.list_topics(topic, timeout=30).topics[topic].partitions)
    except KafkaException as error:
        raise click.ClickException(f"Kafka is not responding at {bootstrap}: {error.args[0].str()}") from None
    if not partitions:
        raise click.ClickException(f"topic {topic!r} does not exist at {bootstrap}")
    _send(producer, topic, bootstrap, paced(partitions, rate, seconds), stamped=False)


def to_flume(address: str, rate: int, seconds: float) -> None:
    """Send to a Flume agent's socket; wait until its channel has accepted the lines of each tick."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), CONNECT_SECONDS) as agent, agent.makefile("rb") as answers:
        for _, lines in paced(1, rate, seconds):
            texts = [line.value for line in lines if line.value is not None and is_text(line.value)]
            agent.sendall(b"".join(text + b"\n" for text in texts))
            if [answers.readline() for _ in texts] != [b"OK\n"] * len(texts):
                raise click.ClickException(f"Flume at {address} did not accept all lines: see its log")


def is_text(line: bytes) -> bool:
    """Return whether Flume's socket accepts a line as a single one; it closes the connection on invalid UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return b"\n" not in line


def paced(partitions: int, rate: int, seconds: float) -> Slices:
    """Yield a partition and its lines ten times a second, the partitions in turn."""
    recipe = Recipe(partitions=partitions, count=ENDLESS)
    sources = cycle([(number, recipe.lines(number)) for number in range(partitions)])
    ends, per_tick = time.monotonic() + seconds, rate * TICK_SECONDS
    for tick in count():
        if (now := time.monotonic()) >= ends:
            return
        number, lines = next(sources)
        # Of less than one line per tick, one comes every few ticks.
        yield number, list(islice(lines, int(per_tick * (tick + 1)) - int(per_tick * tick)))
        time.sleep(max(0, now + TICK_SECONDS - time.monotonic()))


if __name__ == "__main__":
    main()
