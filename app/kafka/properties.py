"""
What Winnow knows about librdkafka's property names, without librdkafka.

The configuration and the clients share it, so it imports the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_BACKOFF = "Winnow relies on its own value to detect commits that were sent twice"
OWNED: Mapping[str, str] = {
    "transactional.id": "Winnow derives it from group.id to fence earlier owners of a source partition",
    "enable.idempotence": "Winnow's producers are always idempotent",
    "isolation.level": "Winnow reads only committed records",
    "enable.auto.commit": "Winnow commits an offset only together with its output",
    "enable.auto.offset.store": "Winnow commits an offset only together with its output",
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
"""The properties that only Winnow sets, each with the reason that a user is given."""

DEFAULT_COMPRESSION = "lz4"
LARGEST_BATCH = 1_000_000
# librdkafka takes no message.max.bytes above this, however much the topics take.
LARGEST_RECORD = 1_000_000_000

BROKERS = ("bootstrap.servers", "metadata.broker.list")
"""The two names of the property that says where Kafka is; one of them must be set."""

# librdkafka has a few properties of its own that end in .file. Their values are paths, and librdkafka reads them.
_NATIVE_FILES = re.compile(r"sasl\.oauthbearer\.assertion\..*\.file")


def is_secret_file(name: str) -> bool:
    """Return whether a property is Winnow's `NAME.file`: a path to the value of the property NAME."""
    return name.endswith(".file") and not _NATIVE_FILES.fullmatch(name)


def value_name(name: str) -> str:
    """Return the name of the property whose value a `NAME.file` holds."""
    return name.removesuffix(".file")


def compression(kafka: Mapping[str, str]) -> str:
    """Return the codec that producers compress with; of the property's two names librdkafka reads the second last."""
    return kafka.get("compression.codec", kafka.get("compression.type", DEFAULT_COMPRESSION))


def largest_record(kafka: Mapping[str, str], largest_batch: int) -> int:
    """
    Return the size of the largest record that producers take, in bytes before compression.

    The broker measures a batch compressed, librdkafka a record before that.

    Args:
        kafka: what the user wrote.
        largest_batch: the largest batch that any of the topics takes, in bytes.
    """
    usual = min(max(4 * largest_batch, LARGEST_BATCH), LARGEST_RECORD)
    return int(kafka.get("message.max.bytes", usual))
