"""The settings of librdkafka on which something depends."""

from __future__ import annotations

from app.kafka import settings
from app.kafka.writers import SENT_AGAIN_SECONDS
from app.model import Partition
from tests.fakes import make_task_config


def test_a_commit_that_was_sent_twice_takes_long_enough_to_be_suspect() -> None:
    """A producer waits its back-off, less 20 % of jitter, before it sends a request again; a user cannot shorten it."""
    task_config = make_task_config(kafka={"bootstrap.servers": "nowhere:9092", "retry.backoff.ms": "1"})

    made = settings.transactional_producer(task_config, Partition("raw", 0))

    assert 0.8 * int(made["retry.backoff.ms"]) / 1000 >= SENT_AGAIN_SECONDS


def test_a_users_setting_is_kept() -> None:
    """The defaults favour throughput; a user's own setting is not changed."""
    fast, patient = (
        make_task_config(kafka={"bootstrap.servers": "nowhere:9092"}),
        {"bootstrap.servers": "x", "linger.ms": "7"},
    )

    assert settings.transactional_producer(fast, Partition("raw", 0))["linger.ms"] == 100
    assert settings.producer(fast)["linger.ms"] == 20
    assert settings.transactional_producer(make_task_config(kafka=patient), Partition("raw", 0))["linger.ms"] == "7"
