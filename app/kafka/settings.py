"""Turns a cluster's properties from the configuration into the librdkafka settings of each kind of client."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from app.errors import Unreachable
from app.kafka import properties
from app.kafka.failures import section_of
from app.model import Partition, TaskConfig, transactional_id

Settings = dict[str, str | int | bool]

# librdkafka would log each retry and each broker to stderr. Winnow logs outages itself.
SILENT = logging.getLogger("winnow.librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
QUIET: Settings = {"log_level": 2, "log.connection.close": False}
# If brokers create topics, any request for a deleted one would recreate it with one partition. For a producer,
# librdkafka 2.16 defaults to true and respects false like the other clients.
NO_NEW_TOPICS: Settings = {"allow.auto.create.topics": False}
# Between two connection attempts librdkafka waits for half of the first value (rd_kafka_connect_any). A producer needs
# two attempts to open, and there may be a thousand producers. With the second value, 10 s by default, it notices within
# a second that a broker is back.
PROMPT: Settings = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 1000}

CONSUMER_DEFAULTS: Settings = {
    # With the default of 1,000 ms, a consumer that empties its queue waits a second before it fetches again.
    "fetch.queue.backoff.ms": 2,
    "fetch.wait.max.ms": 100,
    # A fetch may decompress to many times its size, and librdkafka checks the queue's limit only before fetching. With
    # 16 MB a worker grew to 460 MB, with 4 MB to 340 MB, at the same speed (make bench).
    "fetch.max.bytes": 4 << 20,
    "queued.min.messages": 30_000,
    "queued.max.messages.kbytes": 32 << 10,
}
# The bytes to fetch of a partition at once (librdkafka's default, and the least worth a request), and a usual record's.
LARGEST_FETCH, LEAST_FETCH, USUAL_RECORD = 1 << 20, 64 << 10, 1 << 10
PRODUCER_DEFAULTS: Settings = {
    "compression.type": properties.DEFAULT_COMPRESSION,
    "linger.ms": 20,
    "queue.buffering.max.messages": 200_000,
}
# How many unacknowledged bytes one producer may hold; `buffer.memory` limits all of them together.
PRODUCER_QUEUE = 32 << 20
# No reader sees a record before its transaction commits, and the commit sends lingering batches at once. Fuller batches
# cost the broker a twentieth to a fifth less CPU (make bench).
TRANSACTIONAL_DEFAULTS: Settings = PRODUCER_DEFAULTS | {"linger.ms": 100}
# Without transactions, a commit waits for batches that linger: only librdkafka's flush cuts that short, and the bulk
# backend cannot call it.
LONGEST_LINGER_MS = 100
# Other systems must find lines by key in the same partition, so this is the partitioner of Java's producer. It is not
# used if a partition is given.
LIKE_JAVA: Settings = {"partitioner": "murmur2_random"}
# How long a producer waits before it resends a request; see `app.kafka.writers.SENT_AGAIN_SECONDS`.
RETRY_BACKOFF_MS = 500


def common(kafka: Mapping[str, str]) -> Settings:
    """
    Return the settings of every client: the user's, with each `NAME.file` replaced by NAME and the file's content.

    Raises Unreachable if the file of a secret cannot be read, or is not text; perhaps it is being replaced.
    """
    section = section_of(kafka)
    own = dict(_read(section, key, value) for key, value in kafka.items())
    return QUIET | PROMPT | {"client.id": "winnow"} | own | NO_NEW_TOPICS


def _read(section: str, key: str, value: str) -> tuple[str, str]:
    if not properties.is_secret_file(key):
        return key, value
    try:
        return properties.value_name(key), Path(value).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        msg = f"{section}.{key}: cannot read {value} ({error.strerror})"
        raise Unreachable(msg, "mount the secret on the driver and on all executors") from None
    except UnicodeDecodeError:
        msg = f"{section}.{key}: {value} is not UTF-8 text"
        raise Unreachable(msg, "store it as text; librdkafka reads binary files through `NAME.location`") from None


def reader(kafka: Mapping[str, str], group: str, defaults: Settings = CONSUMER_DEFAULTS) -> Settings:
    """
    Return the settings of every consumer: it joins no group, and commits only what it is told to. Raises as `common`.

    All have the same limits, so `app.kafka.validation` tries them for all. That of producers is left out: librdkafka
    wants `fetch.max.bytes`, which Winnow sets, to be no smaller.
    """
    own = {name: value for name, value in common(kafka).items() if name != "message.max.bytes"}
    return {
        **defaults,
        **own,
        "group.id": group,  # whose offsets are meant, and its ACLs; librdkafka requires one
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",  # if retention has passed the offset: the first remaining record
    }


def consumer(config: TaskConfig) -> Settings:
    """Return the settings of a task's consumer, which reads only committed records and never moves an offset itself."""
    defaults = dict(CONSUMER_DEFAULTS)
    if most := config.rates.most:  # a partition fetches little ahead, because a rest drops it
        defaults["queued.min.messages"] = min(int(defaults["queued.min.messages"]), max(100, most))
        defaults["fetch.message.max.bytes"] = min(LARGEST_FETCH, max(LEAST_FETCH, most * USUAL_RECORD))
    return reader(config.kafka, config.group, defaults) | {
        "group.protocol": "classic",
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }


def producer(config: TaskConfig, defaults: Settings = PRODUCER_DEFAULTS, *, lanes: int = 1) -> Settings:
    """Return the settings of one of `lanes` idempotent producers of a task; both destinations accept its batches."""
    smallest, largest = sorted((config.sink.max_bytes, config.dead_letters.max_bytes))
    record = properties.largest_record(config.output_kafka, largest)
    sizes: Settings = {
        "batch.size": max(1, min(properties.LARGEST_BATCH, smallest)),
        "message.max.bytes": record,
        properties.QUEUE: min(PRODUCER_QUEUE, config.buffer_memory // lanes) >> 10,
    }
    made = defaults | sizes | common(config.output_kafka) | LIKE_JAVA | {"enable.idempotence": True}
    # The largest record must fit, even if hundreds of producers share a worker's memory.
    return made | {properties.QUEUE: max(int(made[properties.QUEUE]), -(-record >> 10))}


def acknowledged_producer(config: TaskConfig, *, lanes: int = 1) -> Settings:
    """Return the settings of a producer without transactions, which lingers no longer than a commit may wait."""
    made = producer(config, lanes=lanes)
    for name in properties.LINGER:
        if float(made.get(name, 0)) > LONGEST_LINGER_MS:
            made[name] = LONGEST_LINGER_MS
    return made


def transactional_producer(config: TaskConfig, partition: Partition, *, lanes: int = 1) -> Settings:
    """Return the settings of the one producer that may write for a source partition, one of `lanes` in its task."""
    # librdkafka doubles its back-off with each retry, up to the maximum. Equal values make every back-off the same.
    patience: Settings = {"retry.backoff.ms": RETRY_BACKOFF_MS, "retry.backoff.max.ms": RETRY_BACKOFF_MS}
    return (
        producer(config, TRANSACTIONAL_DEFAULTS, lanes=lanes)
        | patience
        | fencing(config.group, config.transaction_seconds, partition)
    )


def fencing(group: str, transaction_seconds: float, partition: Partition) -> Settings:
    """Return the settings by which a producer fences every other owner of a source partition."""
    return {
        "transactional.id": transactional_id(group, partition),
        "transaction.timeout.ms": int(transaction_seconds * 1000),
    }
