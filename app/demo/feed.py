"""A source of raw lines at a steady rate, for trying a deployment: `python -m app.demo.feed --bootstrap HOST:PORT`."""

from __future__ import annotations

import time
from itertools import cycle, islice

import click
from confluent_kafka import Producer

from app.demo.lines import PRODUCER, Recipe

TICK_SECONDS = 0.1
ENDLESS = 1 << 40


@click.command()
@click.option("--bootstrap", required=True, help="Where Kafka is.")
@click.option("--topic", required=True, help="The topic to produce to; it must exist.")
@click.option("--rate", default=2_000, show_default=True, help="Lines a second.")
@click.option("--seconds", default=float("inf"), help="Stop after so long; by default never.")
def main(bootstrap: str, topic: str, rate: int, seconds: float) -> None:
    """Produce varied raw lines, 1 % of them bad, with the time of now."""
    producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap})
    partitions = len(producer.list_topics(topic, timeout=30).topics[topic].partitions)
    if not partitions:
        raise click.ClickException(f"topic {topic!r} does not exist at {bootstrap}")
    recipe = Recipe(partitions=partitions, count=ENDLESS)
    sources = cycle([(number, recipe.lines(number)) for number in range(partitions)])
    ends = time.monotonic() + seconds
    while (now := time.monotonic()) < ends:
        number, lines = next(sources)
        for line in islice(lines, int(rate * TICK_SECONDS)):
            producer.produce(topic, line.value, line.key, number)
        producer.poll(max(0, now + TICK_SECONDS - time.monotonic()))
        time.sleep(max(0, now + TICK_SECONDS - time.monotonic()))
    producer.flush(30)


if __name__ == "__main__":
    main()
