"""A Kafka and a Spark for the driver, made of dicts and a function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from app.driver.clients import Clients
from app.errors import NotUsable
from app.model import Assignment, CommittedOffset, Destination, Partition, Receipt, Topic, Watermarks
from app.offsets.metadata import Counts, OffsetMetadata

Result = list[Receipt] | Exception


class DriverKafka:
    """
    The Kafka that the driver sees, with the partitions of one topic, `raw`.

    Args:
        partitions: for each partition, named `p0` and so on, its first offset and its end.
    """

    transactional = True

    def __init__(self, **partitions: tuple[int, int]) -> None:
        self.watermark = {Partition("raw", int(name[1:])): ends for name, ends in partitions.items()}
        self.committed: dict[Partition, CommittedOffset] = {}
        self.fenced: list[list[Partition]] = []
        self.troubles: list[Exception] = []
        """Errors that the next requests raise, one each."""
        self.topic_id = "id-1"
        self.topic_gone = False
        self.sink_leaderless: set[int] = set()
        """Partitions of the sink, which has two, without a leader."""
        self.sink_gone: NotUsable | None = None
        self.reachable = True
        """Whether a fence reaches anybody."""
        self.leaderless: set[int] = set()
        """Partitions that the topic's description names without a leader."""
        self.silent: set[Partition] = set()
        """Partitions whose leader does not answer."""
        self.short_transactions: NotUsable | None = None
        self.asked_for_time: list[int] = []
        self.compacted: set[str] = set()
        """The topics that take only records with a key."""

    @property
    def clients(self) -> Clients:
        """Return itself as each client."""
        return Clients(topics=self, group=self, fence=self, offsets=self)

    def source_topics(self, names: Collection[str], pattern: str | None, known: Collection[str]) -> dict[str, Topic]:
        if "clean" in names:
            self._raise_if_gone()
            return {
                "clean": Topic("clean", "id-2", 2, frozenset(self.sink_leaderless)),
                "dead": Topic("dead", "id-3", 1),
            }
        if self.topic_gone and "raw" in known:
            return {}
        return {"raw": Topic("raw", self.topic_id, len(self.watermark), frozenset(self.leaderless))}

    def _raise_if_gone(self) -> None:
        if self.sink_gone is not None:
            raise self.sink_gone

    def destination(self, name: str) -> Destination:
        if self.troubles:
            raise self.troubles.pop(0)
        self._raise_if_gone()
        return Destination(name, 2, 1_000_000, compacted=name in self.compacted)

    def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
        ends = {partition: self.watermark[partition] for partition in partitions if partition not in self.silent}
        return {partition: Watermarks(low, high, high) for partition, (low, high) in ends.items()}

    def offsets_at(self, partitions: Iterable[Partition], milliseconds: int) -> Mapping[Partition, int | None]:
        self.asked_for_time.append(milliseconds)
        return dict.fromkeys((each for each in partitions if each not in self.silent), 5)

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        return dict(self.committed)

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        raise NotImplementedError

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def refuse_foreign_members(self) -> None:
        pass

    def refuse_short_transactions(self) -> None:
        if self.short_transactions is not None:
            raise self.short_transactions

    def fence(self, partitions: Iterable[Partition]) -> bool:
        self.fenced.append(list(partitions))
        return self.reachable


class FakeRounds:
    """Runs rounds by calling a function; an unending round ends when it is cancelled."""

    def __init__(self, act: Callable[[Sequence[Assignment]], Result], slots: int = 2, unending: bool = False) -> None:
        self.slots = slots
        self.unending = unending
        self.rounds: list[list[Assignment]] = []
        self.cancelled = self.stopped = False
        self._act = act

    def submit(self, assignments: Sequence[Assignment]) -> FakeRound:
        self.rounds.append(list(assignments))
        return FakeRound(self, self._act(assignments))

    def stop(self) -> None:
        self.stopped = True


class FakeRound:
    """One round, with its result."""

    lost_tasks = done_tasks = 0
    starved = False

    def __init__(self, rounds: FakeRounds, result: Result) -> None:
        self._rounds = rounds
        self._result = result

    def wait(self, seconds: float) -> bool:
        return not self._rounds.unending or self._rounds.cancelled

    def cancel(self) -> None:
        self._rounds.cancelled = True

    def receipts(self) -> list[Receipt]:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def works(kafka: DriverKafka, then: Callable[[], object] = lambda: None) -> Callable[[Sequence[Assignment]], Result]:
    """Do all the work of a round at once, commit it, then call `then`."""

    def act(assignments: Sequence[Assignment]) -> Result:
        receipts = []
        for each in (each for assignment in assignments for each in assignment.ranges):
            end = each.end if each.end is not None else kafka.watermark[each.partition][1]
            count = end - each.start
            before = kafka.committed.get(each.partition, CommittedOffset(each.start))
            metadata = OffsetMetadata.parse(before.metadata)
            since = metadata.since if metadata.is_ours else each.start
            counts = metadata.counts + Counts(count, count)
            text = str(OffsetMetadata(each.topic_id, since, counts))
            kafka.committed[each.partition] = CommittedOffset(end, text)
            receipts.append(Receipt(each.partition, each.start, end, count, count, metadata=text))
        then()
        return receipts

    return act
