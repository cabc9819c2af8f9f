"""
Ends the transaction of a producer that is at work, sooner than its successor could by opening alone.

While the coordinator aborts that transaction it refuses to open another producer (CONCURRENT_TRANSACTIONS), and
librdkafka 2.16 asks again only after half a second (rd_kafka_idemp_pid_timer_restart), in which readers wait. The abort
takes some 20 ms. So another producer asks first, and is thrown away as soon as it was refused.
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
# When librdkafka may ask again: then a request may be under way that would fence whoever opens after it.
ASKED_AGAIN_SECONDS = 0.4


def interrupt(make: Callable[..., Producer], configured: settings.Settings, topic: str) -> None:
    """
    Fence the producer that is at work with a transactional id, and have its transaction aborted.

    Args:
        make: makes a producer from its settings.
        configured: those of a producer with this transactional id.
        topic: any topic, for the first question.

    Raises:
        KafkaException: Kafka cannot be asked, or does not allow it.
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
