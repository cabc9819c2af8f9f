"""Whether output can be delivered: the sink and dead-letter topics exist and their partitions accept records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.config import Config
from app.driver.clients import Topics
from app.errors import Undeliverable
from app.model import Partition, Partitioner, Topic


class Destinations:
    """The sink and dead-letter topics."""

    def __init__(self, config: Config, topics: Topics) -> None:
        self._names = (config.sink.topic, config.dead_letters.topic)
        self._by_key = {config.sink.topic} if config.sink.partitioner is Partitioner.KEY else set()
        self._topics = topics

    def undeliverable(self, partitions: Iterable[Partition]) -> dict[Partition, Undeliverable]:
        """Return the error of each source partition whose output cannot be delivered now."""
        found: dict[Partition, Undeliverable] = {}
        topics = self._topics.source_topics(self._names, None, ()).values()
        refusing = {where: why for topic in topics for where, why in self._refusing(topic)}
        for each in partitions:
            wanted = {Partition(topic.name, number) for topic in topics for number in self._written(topic, each)}
            if reasons := [refusing[where] for where in sorted(wanted & refusing.keys())]:
                cause = f"its output cannot be delivered: {' and '.join(reasons)}"
                found[each] = Undeliverable(each, cause, cure="restore the broker; the partition resumes on its own")
        return found

    def _refusing(self, topic: Topic) -> Iterator[tuple[Partition, str]]:
        if topic.behind:
            needed = self._topics.min_in_sync(topic.name)
            for number, in_sync in topic.behind:
                if in_sync < needed:
                    where = Partition(topic.name, number)
                    yield where, f"{where} has {in_sync} in-sync replicas but min.insync.replicas is {needed}"
        for number in topic.leaderless:
            where = Partition(topic.name, number)
            yield where, f"{where} has no leader"

    def _written(self, topic: Topic, source: Partition) -> Iterable[int]:
        return range(topic.partitions) if topic.name in self._by_key else (source.number % topic.partitions,)
