"""Whether what tasks write can be delivered: sink and dead letters exist, and their partitions have leaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.config import Config
from app.driver.clients import Topics
from app.errors import Undeliverable
from app.model import Partition


class Destinations:
    """The two topics that tasks write to."""

    def __init__(self, config: Config, topics: Topics) -> None:
        self._names = (config.sink.topic, config.dead_letters.topic)
        self._topics = topics

    def undeliverable(self, partitions: Iterable[Partition]) -> dict[Partition, Undeliverable]:
        """
        Return the error of each source partition whose output nobody takes now.

        Raises:
            TopicMissing: one of the topics is gone.
            Unreachable, NotUsable: Kafka does not answer, or refuses.
        """
        return dict(self._undeliverable(partitions))

    def _undeliverable(self, partitions: Iterable[Partition]) -> Iterator[tuple[Partition, Undeliverable]]:
        topics = self._topics.source_topics(self._names, None, ()).values()
        leaderless = {Partition(topic.name, number) for topic in topics for number in topic.leaderless}
        for each in partitions:
            wanted = {Partition(topic.name, each.number % topic.partitions) for topic in topics}
            if missing := sorted(wanted & leaderless):
                cause = f"its lines cannot be delivered: no leader for {' and '.join(map(str, missing))}"
                yield each, Undeliverable(each, cause, cure="bring the broker back; the partition goes on by itself")
