"""With `sink.kafka`, a message names the cluster, and the section, of the client that it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException

from app import start
from app.config import Config, load
from app.errors import NotUsable
from app.kafka import ages, offsets, records
from app.kafka.admin import AdminConnection
from app.model import Partition
from tests.fakes import make_task_config

RAW, CLEAN = Partition("raw", 0), Partition("clean", 0)
FLAGS = (
    "group.id=g",
    "source.topics=raw",
    "sink.topic=clean",
    "dead.letters.topic=dead",
    "kafka.bootstrap.servers=127.0.0.1:1",
    "sink.kafka.bootstrap.servers=127.0.0.1:2",
)
TASKS = make_task_config(sink_kafka={"bootstrap.servers": "127.0.0.1:2"})
Ask = Callable[[Config], object]
SINK: Mapping[str, Ask] = {
    "offsets": lambda config: start.clients(config).offsets.load([RAW], stable=False),
    "pause": lambda config: start.clients(config).pauses.read(),
    "destinations": lambda config: start.clients(config).destinations.destination("clean"),
    "transactions": lambda config: start.transaction_log(config).open_transactions(0),
    "records": lambda config: list(start.records(config.output_kafka, "g").batches({CLEAN: 0}, {CLEAN: 1})),
    "first lines": lambda config: start.first_records(config.output_kafka, "g").times({CLEAN: 0}),
    "positions of replays": lambda _: start.dead_letter_replays(TASKS).positions([CLEAN]),
    "topics of replays": lambda _: start.dead_letter_replays(TASKS).make_room("again", 1, {}),
}
SOURCE: Mapping[str, Ask] = {
    "topics": lambda config: start.clients(config).topics.watermarks([RAW]),
    "records": lambda config: list(start.records(config.kafka, "g").batches({RAW: 0}, {RAW: 1})),
    "first records": lambda config: start.first_records(config.kafka, "g").times({RAW: 0}),
}
CLUSTERS = [
    *(pytest.param(ask, "the sink's Kafka", "sink.kafka", id=f"sink: {name}") for name, ask in SINK.items()),
    *(pytest.param(ask, "Kafka", "kafka", id=f"source: {name}") for name, ask in SOURCE.items()),
]


class Reader:
    """A consumer whose requests are all rejected."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def poll(self, _: float) -> None:
        """Return no event."""

    def __getattr__(self, _: str) -> Callable[..., NoReturn]:
        return rejected


def rejected(*_: object, **__: object) -> NoReturn:
    raise KafkaException(KafkaError(KafkaError.UNSUPPORTED_VERSION))


@pytest.mark.parametrize(("ask", "cluster", "section"), CLUSTERS)
def test_a_failure_names_its_cluster(ask: Ask, cluster: str, section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator must know which brokers to look after, and which section to correct."""
    monkeypatch.setattr(AdminConnection, "wait", rejected)
    for module in (ages, offsets, records):
        monkeypatch.setattr(module, "Consumer", Reader)

    with pytest.raises(NotUsable) as raised:
        ask(load(None, FLAGS, {}))

    assert raised.value.cause.startswith(f"{cluster} rejected the request while ")
    assert f"check the settings under `{section}`" == raised.value.cure
