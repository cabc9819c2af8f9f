"""Turns the `kafka` section of the configuration into librdkafka settings, for each kind of client."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from app.errors import NotUsable
from app.kafka.properties import DEFAULT_COMPRESSION, LARGEST_BATCH, is_secret_file, largest_record, value_name
from app.model import Partition, TaskConfig, transactional_id

Settings = dict[str, str | int | bool]

# librdkafka would log a line to stderr for each retry and broker. Winnow logs each outage itself.
SILENT = logging.getLogger("winnow.librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
QUIET: Settings = {"log_level": 2, "log.connection.close": False}
# Where brokers create topics, any question about a deleted one would bring it back with one partition. A producer's own
# default is true, and it keeps to false like the other clients (librdkafka 2.16).
NO_NEW_TOPICS: Settings = {"allow.auto.create.topics": False}
# Between two attempts to connect librdkafka waits for half of the first (rd_kafka_connect_any). A producer needs two
# attempts to open, and there may be a thousand producers. With the second, whose default is 10 s, librdkafka notices
# the return of a broker within a second.
PROMPT: Settings = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 1000}

CONSUMER_DEFAULTS: Settings = {
    # The default of 1,000 ms makes a consumer that empties its queue wait a second before it fetches again.
    "fetch.queue.backoff.ms": 2,
    "fetch.wait.max.ms": 100,
    # A fetch may decompress to many times its size, and librdkafka checks the queue's limit only before it.
    "fetch.max.bytes": 4 << 20,
    "queued.min.messages": 30_000,
    "queued.max.messages.kbytes": 32 << 10,
}
# What is fetched of a partition at once: librdkafka's default, and what is worth a request; in bytes, as is a record.
LARGEST_FETCH, LEAST_FETCH, USUAL_RECORD = 1 << 20, 64 << 10, 1 << 10
PRODUCER_DEFAULTS: Settings = {
    "compression.type": DEFAULT_COMPRESSION,
    "linger.ms": 20,
    "queue.buffering.max.messages": 200_000,
}
# What one producer may hold that is not acknowledged yet, in bytes; what all of them may hold is `buffer.memory`.
PRODUCER_QUEUE = 32 << 20
# Nobody sees a record before its transaction is committed, and the commit sends at once whatever lingers. Fuller
# batches cost the broker less.
TRANSACTIONAL_DEFAULTS: Settings = PRODUCER_DEFAULTS | {"linger.ms": 100}
# Where lines go by their key, other systems must find them by the same key: this is what Java's producer does. It is
# not asked where a partition is named.
LIKE_JAVA: Settings = {"partitioner": "murmur2_random"}
# How long a producer waits before it sends a request again: see `app.kafka.writers.SENT_AGAIN_SECONDS`.
RETRY_BACKOFF_MS = 500


def common(kafka: Mapping[str, str]) -> Settings:
    """
    Return the settings of every client: what the user wrote, with `NAME.file` replaced by the file's content.

    Raises:
        NotUsable: if a file of a secret cannot be read, or is not text.
    """
    return QUIET | PROMPT | {"client.id": "winnow"} | dict(map(_read, kafka.items())) | NO_NEW_TOPICS


def _read(item: tuple[str, str]) -> tuple[str, str]:
    key, value = item
    if not is_secret_file(key):
        return item
    try:
        return value_name(key), Path(value).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        msg = f"kafka.{key}: cannot read {value} ({error.strerror})"
        raise NotUsable(msg, "mount the secret on the driver and on all executors") from None
    except UnicodeDecodeError:
        msg = f"kafka.{key}: {value} is not UTF-8 text"
        raise NotUsable(msg, "store it as text; librdkafka reads binary files through `NAME.location`") from None


def reader(kafka: Mapping[str, str], group: str) -> Settings:
    """Return the settings of a consumer that only looks: it joins no group, and commits nothing."""
    return common(kafka) | {
        "group.id": group,  # for its ACLs, and for librdkafka, which wants one
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",  # retention has passed the offset: the first record that is left
    }


def _prefetch(most: int) -> Settings:
    """
    Return how much to fetch ahead of each partition, where so many records are read of it in a second.

    A partition that rests drops what was fetched ahead.
    """
    if not most:
        return {}
    return {
        "queued.min.messages": min(int(CONSUMER_DEFAULTS["queued.min.messages"]), max(100, most)),
        "fetch.message.max.bytes": min(LARGEST_FETCH, max(LEAST_FETCH, most * USUAL_RECORD)),
    }


def consumer(config: TaskConfig) -> Settings:
    """Return the settings of a task's consumer, which reads committed records only and never moves an offset itself."""
    return (
        CONSUMER_DEFAULTS
        | _prefetch(config.rates.most)
        | common(config.kafka)
        | {
            "group.id": config.group,
            "group.protocol": "classic",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )


def producer(config: TaskConfig, defaults: Settings = PRODUCER_DEFAULTS, *, lanes: int = 1) -> Settings:
    """Return the settings of one of so many idempotent producers of a task, whose batches both destinations take."""
    smallest, largest = sorted((config.sink.max_bytes, config.dead_letters.max_bytes))
    sizes: Settings = {
        "batch.size": max(1, min(LARGEST_BATCH, smallest)),
        "message.max.bytes": largest_record({}, largest),  # what the user wrote replaces it below
        # Even where hundreds share the memory of a worker, the largest record must fit.
        "queue.buffering.max.kbytes": max(min(PRODUCER_QUEUE, config.buffer_memory // lanes), 4 * largest) >> 10,
    }
    return defaults | sizes | common(config.output_kafka) | LIKE_JAVA | {"enable.idempotence": True}


def transactional_producer(config: TaskConfig, partition: Partition, *, lanes: int = 1) -> Settings:
    """Return the settings of the one producer that may write for a source partition; the task has so many of them."""
    # librdkafka doubles its back-off with each try, up to the maximum. With both alike, every back-off is the same.
    patience: Settings = {"retry.backoff.ms": RETRY_BACKOFF_MS, "retry.backoff.max.ms": RETRY_BACKOFF_MS}
    return (
        producer(config, TRANSACTIONAL_DEFAULTS, lanes=lanes)
        | patience
        | fencing(config.group, config.transaction_seconds, partition)
    )


def fencing(group: str, transaction_seconds: float, partition: Partition) -> Settings:
    """Return the settings by which a producer shuts out every other owner of a source partition."""
    return {
        "transactional.id": transactional_id(group, partition),
        "transaction.timeout.ms": int(transaction_seconds * 1000),
    }
