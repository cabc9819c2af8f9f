"""The tasks' common configuration, from the configuration file and the destinations in Kafka."""

from __future__ import annotations

from app.config import Config
from app.driver.clients import Topics
from app.model import Owner, TaskConfig


def task_config(config: Config, destinations: Topics, owner: Owner) -> TaskConfig:
    """Return the configuration; sink and dead letters are looked up each time, because they may grow."""
    return TaskConfig(
        group=config.group_id,
        guarantee=config.delivery_guarantee,
        sink=destinations.destination(config.sink.topic),
        dead_letters=destinations.destination(config.dead_letters.topic),
        format=config.source.format,
        parser=config.parser.plugin,
        kafka=config.kafka,
        sink_kafka=config.sink.kafka,
        placeholder=config.placeholder,
        owner=owner,
        offset_store=config.offsets.store.plugin,
        mirrors=config.mirrors,
        commit_seconds=config.commit_interval,
        transaction_seconds=config.transaction_timeout,
        flume_headers=config.source.flume_headers,
        lineage=config.lineage.headers,
        filters=config.filters,
        sink_key=config.sink.key,
        sink_partitioner=config.sink.partitioner,
        rates=config.rates,
        buffer_memory=config.buffer_memory,
        breaker=config.dead_letters.breaker.limit,
        log_level=config.log_level,
    )
