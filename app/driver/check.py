"""What `winnow check --connect` tells: whether the service could work, and where it would start. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from app.config import Config
from app.driver.discover import Surveyor
from app.driver.observe import Observer
from app.kafka.admin import KafkaAdmin


def connected(config: Config, say: Callable[[str], object]) -> int:
    """
    Ask Kafka once; return 0 if every partition could be worked on, 1 if some are blocked.

    Raises:
        Unreachable, NotUsable: Kafka cannot be worked with as it is.
    """
    kafka = KafkaAdmin(config.kafka, config.group_id)
    for topic in (config.sink.topic, config.dead_letters.topic):
        destination = kafka.destination(topic)
        say(f"ok       {topic}: {destination.partitions} partitions, records up to {destination.max_bytes} bytes")
    survey = Surveyor(config, kafka, Observer()).survey()
    for partition, offset_range in sorted(survey.ranges.items()):
        say(f"ok       {partition}: starts at {offset_range.start}, {survey.lag(offset_range)} offsets behind")
    for error in survey.blocked.values():
        say(f"blocked  {error}")
    return 1 if survey.blocked else 0
