"""What an error means for a partition's writer."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from app.errors import Fenced, PartitionError, Refused, Transient, Undelivered
from app.kafka.failures import of_partition, of_writing
from app.model import Partition

A = Partition("raw", 0)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, Refused),
        (KafkaError.INVALID_TIMESTAMP, Refused),
        (KafkaError.INVALID_RECORD, Refused),
        (KafkaError._INVALID_DIFFERENT_RECORD, Refused),
        (KafkaError.UNSUPPORTED_COMPRESSION_TYPE, Refused),
        (KafkaError.UNKNOWN, Undelivered),
        (KafkaError._MSG_TIMED_OUT, Undelivered),
        (KafkaError.NOT_ENOUGH_REPLICAS, Undelivered),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Undelivered),
        (KafkaError._FENCED, Fenced),
    ],
)
def test_only_an_error_about_a_record_refuses_one(code: int, kind: type[PartitionError]) -> None:
    """A broken broker, or one that denies access, must not turn good lines into dead letters."""
    error = of_writing(KafkaException(KafkaError(code, "the words")), A, "committing", 7)

    assert kind is type(error)
    assert kind is Fenced or "the words" in error.cause
    assert 7 == error.offset


def test_a_record_that_cannot_be_read_is_not_refused() -> None:
    """A corrupt source record says nothing about what was written."""
    assert Transient is type(of_partition(KafkaError(KafkaError.INVALID_MSG), A, "reading"))
