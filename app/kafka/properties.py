"""
Librdkafka's property names, as far as Winnow depends on them.

The configuration and the clients share this module, so it imports the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_BACKOFF = "Winnow relies on its own value to detect commits that were sent twice"
OWNED: Mapping[str, str] = {
    "transactional.id": "Winnow derives it from group.id to fence earlier owners of a source partition",
    "enable.idempotence": "Winnow's producers are always idempotent",
    "isolation.level": "Winnow reads only committed records",
    "enable.auto.commit": "Winnow commits offsets itself, with their output",
    "enable.auto.offset.store": "Winnow commits offsets itself, with their output",
    "auto.offset.reset": "use starting.offsets and out.of.range",
    "enable.partition.eof": "Winnow needs it to detect the end of a partition that ends with control records",
    "group.id": "use the top-level key group.id",
    "group.protocol": "Winnow assigns partitions itself and never joins the group",
    "group.instance.id": "Winnow assigns partitions itself and never joins the group",
    "retry.backoff.ms": _BACKOFF,
    "retry.backoff.max.ms": _BACKOFF,
    "transaction.timeout.ms": "use transaction.timeout",
    "allow.auto.create.topics": "a deleted topic would be recreated with the broker's default settings",
    "partitioner": "use sink.partitioner",
    "delivery.report.only.error": "Winnow chooses the delivery reports that it needs",
}
"""The properties that only Winnow sets, with the reason shown to a user who sets one."""

DEFAULT_COMPRESSION = "lz4"
LARGEST_BATCH = 1_000_000
# librdkafka's limit for message.max.bytes.
LARGEST_RECORD = 1_000_000_000

QUEUE = "queue.buffering.max.kbytes"
LINGER = ("linger.ms", "queue.buffering.max.ms")
"""The two names of the property with the time for which a batch waits for more records."""
_WHOLE = re.compile(r"[1-9]\d*")
NUMBERS = {"message.max.bytes": _WHOLE, QUEUE: _WHOLE} | dict.fromkeys(LINGER, re.compile(r"\d+(\.\d+)?"))
"""The numbers that Winnow reads, too. librdkafka takes other forms, as C does: 0x10 is 16, and so is `16abc`."""

BROKERS = ("bootstrap.servers", "metadata.broker.list")
"""The two names of the property with the brokers' addresses; one of them is required."""

# librdkafka's own properties that end in .file: their values are paths, which librdkafka reads.
_NATIVE_FILES = re.compile(r"sasl\.oauthbearer\.assertion\.((private\.key|jwt\.template)\.)?file")


def is_secret_file(name: str) -> bool:
    """Return whether a property is Winnow's `NAME.file`, the path of a file with the value of NAME."""
    return name.endswith(".file") and not _NATIVE_FILES.fullmatch(name)


def value_name(name: str) -> str:
    """Return the property that librdkafka gets: NAME in place of a `NAME.file`."""
    return name.removesuffix(".file") if is_secret_file(name) else name


def is_refused(name: str, value: str) -> bool:
    """Return whether Winnow refuses a property before librdkafka sees it."""
    return name in OWNED or (name in NUMBERS and not NUMBERS[name].fullmatch(value))


def compression(kafka: Mapping[str, str]) -> str:
    """
    Return the producers' codec in small letters; librdkafka takes any.

    If both of the property's names are set, librdkafka uses `compression.codec`.
    """
    return kafka.get("compression.codec", kafka.get("compression.type", DEFAULT_COMPRESSION)).lower()


def largest_record(kafka: Mapping[str, str], largest_batch: int) -> int:
    """
    Return the size of the largest record that producers accept, in bytes before compression.

    `largest_batch` is the largest batch that any of the topics accepts, in bytes. The broker checks a batch after
    compression, librdkafka a record before it.
    """
    usual = min(max(4 * largest_batch, LARGEST_BATCH), LARGEST_RECORD)
    return int(kafka.get("message.max.bytes", usual))
