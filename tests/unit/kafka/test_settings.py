"""The librdkafka settings that Winnow depends on."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from app.errors import Unreachable
from app.kafka import settings
from app.kafka.ages import SMALL
from app.kafka.properties import compression, largest_record
from app.kafka.writers import SENT_AGAIN_SECONDS
from app.model import Destination, Partition, SinkKafka
from app.rates import Rates
from tests.fakes import make_task_config


def test_a_commit_that_was_sent_twice_takes_long_enough_to_be_suspect() -> None:
    """A producer waits for its back-off, less 20 % of jitter, before it resends. A user cannot shorten it."""
    task_config = make_task_config(kafka={"bootstrap.servers": "nowhere:9092", "retry.backoff.ms": "1"})

    made = settings.transactional_producer(task_config, Partition("raw", 0))

    assert 0.8 * int(made["retry.backoff.ms"]) / 1000 >= SENT_AGAIN_SECONDS


def test_the_back_off_of_a_transactional_producer_never_grows() -> None:
    """A commit is judged by one back-off, so the largest must not exceed the first, whatever the user sets."""
    task_config = make_task_config(kafka={"bootstrap.servers": "nowhere:9092", "retry.backoff.max.ms": "60"})

    made = settings.transactional_producer(task_config, Partition("raw", 0))

    assert made["retry.backoff.max.ms"] == made["retry.backoff.ms"]


@pytest.mark.parametrize("max_bytes", [0, 1_048_588, 250_000_001, 2**31 - 1])
def test_a_producer_can_be_made_whatever_the_topics_take(max_bytes: int) -> None:
    """A topic may accept more than librdkafka, or nothing. Neither is a reason to crash."""
    topic = Destination("clean", 1, max_bytes)
    made = settings.transactional_producer(
        make_task_config(sink=topic, dead_letters=topic, kafka={}), Partition("raw", 0)
    )

    Producer(made, logger=settings.SILENT)

    assert int(made["message.max.bytes"]) >= min(max_bytes, 1_000_000_000)


@pytest.mark.parametrize(("cluster", "section"), [(dict, "kafka"), (SinkKafka, r"sink\.kafka")])
def test_a_secret_that_is_not_text_is_named(cluster: type[dict[str, str]], section: str, tmp_path: Path) -> None:
    """A keystore in place of a password gives one line with the key and without any content."""
    secret = tmp_path / "password"
    secret.write_bytes(b"hunter2\xff\xfe")

    with pytest.raises(Unreachable, match=rf"^{section}\.sasl\.password\.file: .* is not UTF-8 text: ") as caught:
        settings.common(cluster({"sasl.password.file": str(secret)}))

    assert "hunter2" not in str(caught.value)


def test_no_client_creates_topics() -> None:
    """Otherwise a request for a deleted topic would recreate it with one partition. A user cannot enable it."""
    task_config = make_task_config(kafka={"bootstrap.servers": "nowhere:9092", "allow.auto.create.topics": "true"})
    made = (
        settings.common(task_config.kafka),
        settings.consumer(task_config),
        settings.producer(task_config),
        settings.transactional_producer(task_config, Partition("raw", 0)),
    )

    assert [False] * 4 == [each["allow.auto.create.topics"] for each in made]


def test_a_users_setting_is_kept() -> None:
    """The defaults favour throughput and never replace a user's own setting."""
    fast, patient = (
        make_task_config(kafka={"bootstrap.servers": "nowhere:9092"}),
        {"bootstrap.servers": "x", "linger.ms": "7"},
    )

    assert settings.transactional_producer(fast, Partition("raw", 0))["linger.ms"] == 100
    assert settings.producer(fast)["linger.ms"] == 20
    assert settings.transactional_producer(make_task_config(kafka=patient), Partition("raw", 0))["linger.ms"] == "7"


@pytest.mark.parametrize(
    ("kafka", "codec", "largest"),
    [
        ({}, "lz4", 4_000_000),
        ({"compression.type": "gzip"}, "gzip", 4_000_000),
        ({"compression.type": "gzip", "compression.codec": "none"}, "none", 4_000_000),
        ({"compression.codec": "none", "compression.type": "gzip"}, "none", 4_000_000),
        ({"message.max.bytes": "5000000"}, "lz4", 5_000_000),
    ],
)
def test_what_a_producer_takes_is_known_without_one(kafka: dict[str, str], codec: str, largest: int) -> None:
    """A task measures dead letters by these values. If both names of the property are set, librdkafka uses one."""
    config = make_task_config(kafka=kafka)
    made = settings.producer(config)
    last = [value for name, value in made.items() if name in ("compression.type", "compression.codec")][-1]

    assert codec == last == compression(kafka)
    assert largest == int(made["message.max.bytes"]) == largest_record(kafka, 1_000_000)


@pytest.mark.parametrize(("lanes", "megabytes"), [(1, 32), (8, 32), (9, 28), (32, 8), (64, 4), (1_000, 4)])
def test_the_producers_of_a_task_share_its_memory(lanes: int, megabytes: int) -> None:
    """But each has room for the largest record, which may be four times as large before compression."""
    topic = Destination("clean", 1, 1 << 20)
    task_config = make_task_config(sink=topic, dead_letters=topic)

    made = settings.transactional_producer(task_config, Partition("raw", 0), lanes=lanes)

    assert megabytes == int(made["queue.buffering.max.kbytes"]) >> 10


@pytest.mark.parametrize(
    ("own", "topic_bytes"),
    [
        ({"message.max.bytes": "20000000"}, 1 << 20),
        ({}, 128 << 10),
        ({"queue.buffering.max.kbytes": "1000"}, 1 << 20),
    ],
)
def test_the_largest_record_fits_into_the_queue(own: dict[str, str], topic_bytes: int) -> None:
    """Otherwise librdkafka refuses it for ever as a full queue."""
    topic = Destination("clean", 1, topic_bytes)
    task_config = make_task_config(sink=topic, dead_letters=topic, kafka=own)

    made = settings.transactional_producer(task_config, Partition("raw", 0), lanes=1_000)

    assert int(made["message.max.bytes"]) <= int(made["queue.buffering.max.kbytes"]) << 10


def test_a_task_reads_what_is_committed_and_moves_no_offset_itself() -> None:
    """Exactly once rests on it, whatever other readers do, and whatever the user sets."""
    made = settings.consumer(
        make_task_config(kafka={"isolation.level": "read_uncommitted", "enable.auto.commit": "true"})
    )

    wanted = {
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }
    assert wanted == {name: made[name] for name in wanted}


def test_the_limit_of_producers_does_not_concern_consumers() -> None:
    """Librdkafka refuses a consumer whose fetch.max.bytes is smaller, and that of the ages is."""
    kafka = {"message.max.bytes": "60000000"}

    for made in (settings.consumer(make_task_config(kafka=kafka)), settings.reader(kafka, "g")):
        assert "message.max.bytes" not in made
        Consumer(made | SMALL).close()


@pytest.mark.parametrize(
    ("most", "messages", "size"),
    [(0, 30_000, None), (1, 100, 64 << 10), (500, 500, 500 << 10), (10**6, 30_000, 1 << 20)],
)
def test_little_is_fetched_ahead_where_a_rate_is_limited(most: int, messages: int, size: int | None) -> None:
    """A resting partition drops it. Without a limit librdkafka's default stays."""
    made = settings.consumer(make_task_config(rates=Rates(most)))

    assert (messages, size) == (made["queued.min.messages"], made.get("fetch.message.max.bytes"))
