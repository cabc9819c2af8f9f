"""
Aborts the transaction of a running producer faster than its successor could by just opening.

While the coordinator aborts that transaction, it refuses new producers with CONCURRENT_TRANSACTIONS. librdkafka 2.16
retries only after half a second (rd_kafka_idemp_pid_timer_restart), while readers wait, but the abort takes about
20 ms. So another producer asks first and is thrown away as soon as it is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Producer

from app.kafka import settings
from app.kafka.consumer import CONTROL_SECONDS
from app.kafka.delivery import connect
from app.kafka.failures import error_of

LOOK_SECONDS = 0.02
# When librdkafka may retry. From then on a request may be in flight that would fence whichever producer opens next.
ASKED_AGAIN_SECONDS = 0.4


def interrupt(make: Callable[..., Producer], configured: settings.Settings, topic: str) -> None:
    """
    Fence the running producer of a transactional id, and have its transaction aborted.

    `configured` are the settings of a producer with that id; `topic` is any topic, for the first request.

    Raises:
        KafkaException: Kafka does not respond, or denies access.
    """
    client = make(configured, logger=settings.SILENT)
    connect(client, topic)
    until = time.monotonic() + ASKED_AGAIN_SECONDS
    while time.monotonic() < until:
        try:
            return client.init_transactions(LOOK_SECONDS)
        except KafkaException as error:
            match error_of(error).code():
                case KafkaError.CONCURRENT_TRANSACTIONS:
                    return None
                case KafkaError._TIMED_OUT:  # noqa: SLF001
                    continue
            raise
    return client.init_transactions(CONTROL_SECONDS)
