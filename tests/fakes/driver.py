"""A Kafka and a Spark for the driver, made of dicts and a function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from app.config import Config, load
from app.cures import KafkaTools
from app.driver.clients import Clients, Rounds
from app.driver.pause import PauseMark
from app.driver.service import Service
from app.driver.starting_offsets import PartitionOffsets, StartPolicy, decide
from app.driver.stop import Stop
from app.driver.tracker import StatusTracker
from app.errors import NotAllowed, NotUsable
from app.facts import BrokerFacts, TopicFacts
from app.kafka.backend import PLAIN
from app.kafka.clients import TaskClients
from app.model import (
    Assignment,
    CommittedOffset,
    Destination,
    FirstWaiting,
    Guarantee,
    LastRead,
    OffsetRange,
    Outcome,
    Partition,
    Plugin,
    Receipt,
    Topic,
    Watermarks,
)
from app.offsets.contract import TransactionalOffsetStore
from app.offsets.metadata import Counts, OffsetMetadata
from app.runtime import Runtime, Timings
from app.status import log
from app.status.snapshot import About
from tests.fakes import FakeKafka, FakeOffsets, make_task_config
from tests.fakes.pauses import PausedFor
from tests.fakes.simulation import SimulatedTime

Result = list[Receipt] | Exception
IMPATIENT = Timings(control_fence=0.01, fence_all=0.01)


class DriverKafka:
    """
    Kafka as the driver sees it, with the partitions of one topic, `raw`.

    Args:
        partitions: for each partition, named `p0` and so on, its first offset and its end.
    """

    transactional = True

    def __init__(self, **partitions: tuple[int, int]) -> None:
        self.watermark = {Partition("raw", int(name[1:])): ends for name, ends in partitions.items()}
        self.committed: dict[Partition, CommittedOffset] = {}
        self.fenced: list[list[Partition]] = []
        self.troubles: list[Exception] = []
        """Errors that the next requests raise in turn."""
        self.topic_id = "id-1"
        self.topic_gone = False
        self.sink_leaderless: set[int] = set()
        """Leaderless partitions of the sink, which has two."""
        self.sink_behind: dict[int, int] = {}
        """How many replicas are in sync, for sink partitions with too few. Two are needed."""
        self.sink_gone: NotUsable | None = None
        self.when_asked: Callable[[], object] = lambda: None
        """Called when the driver asks for the group's members; may raise an error."""
        self.reachable = True
        """Whether a fence succeeds."""
        self.unfenced: set[Partition] = set()
        """Partitions whose transactional ids have a coordinator that does not respond."""
        self.leaderless: set[int] = set()
        """Partitions without a leader in the topic's description."""
        self.silent: set[Partition] = set()
        """Partitions whose leader does not respond."""
        self.short_transactions: NotUsable | None = None
        self.asked_for_time: list[int] = []
        self.room: dict[str, int] | None = None
        """The placeholders and their partitions; None if source and sink are on one cluster."""
        self.no_room: dict[Partition, NotUsable] = {}
        """Why the placeholder gets no such partition."""
        self.copies: FakeOffsets | None = None
        """The group's offsets on the source's cluster, if the sink has its own."""
        self.keeps_offsets: float | None = None
        """For how many seconds offsets are kept."""
        self.renewed: list[Partition] = []
        """The partitions whose offsets the driver committed, in order."""
        self.compacted: set[str] = set()
        """The topics that accept only records with a key."""
        self.pauses: PauseMark = PausedFor(0)
        self.ages: dict[Partition, FirstWaiting] = {}
        """The first waiting record of each partition."""
        self.clusters: FakeCluster | None = None
        """The cluster that a preflight checks; None to check nothing."""
        self.forbidden: NotAllowed | None = None
        """Why the group's transactional ids may not be used."""

    @property
    def clients(self) -> Clients:
        """Return itself as each client."""
        return Clients(
            topics=self,
            destinations=self,
            group=self,
            fence=self,
            offsets=self,
            placeholders=self if self.room is not None else None,
            copies=self.copies,
            pauses=self.pauses,
            ages=self,
            find_cut=self.find_cut,
            clusters=(self.clusters, self.clusters) if self.clusters else None,
        )

    def source_topics(self, names: Collection[str], pattern: str | None, known: Collection[str]) -> dict[str, Topic]:
        if "clean" in names:
            self._raise_if_gone()
            return {
                "clean": Topic(
                    "clean", "id-2", 2, frozenset(self.sink_leaderless), frozenset(self.sink_behind.items())
                ),
                "dead": Topic("dead", "id-3", 1),
            }
        if self.topic_gone and "raw" in known:
            return {}
        return {"raw": Topic("raw", self.topic_id, len(self.watermark), frozenset(self.leaderless))}

    def matching(self, pattern: str) -> list[str]:
        return ["raw"]

    def find_cut(self, partition: Partition, last: LastRead) -> int | None:
        return None

    def _raise_if_gone(self) -> None:
        if self.sink_gone is not None:
            raise self.sink_gone

    def destination(self, name: str) -> Destination:
        if self.troubles:
            raise self.troubles.pop(0)
        self._raise_if_gone()
        return Destination(name, 2, 1_000_000, compacted=name in self.compacted)

    def retention(self, name: str) -> float | None:
        return None

    def cleanup_policy(self, name: str) -> str:
        return "delete"

    def min_in_sync(self, name: str) -> int:
        return 2

    def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
        ends = {partition: self.watermark[partition] for partition in partitions if partition not in self.silent}
        return {partition: Watermarks(low, high, high) for partition, (low, high) in ends.items()}

    def offsets_at(self, partitions: Iterable[Partition], milliseconds: int) -> Mapping[Partition, int | None]:
        self.asked_for_time.append(milliseconds)
        return dict.fromkeys((each for each in partitions if each not in self.silent), 5)

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        return {each: self.committed[each] for each in partitions if each in self.committed}

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        self.renewed.append(partition)
        self.committed[partition] = CommittedOffset(offset, metadata)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        self.committed[partition] = CommittedOffset(offset, metadata)

    def close(self) -> None:
        pass

    def waiting(self, offsets: Mapping[Partition, int]) -> dict[Partition, FirstWaiting]:
        return {each: self.ages[each] for each in offsets if each in self.ages}

    def lacking(self, partitions: Iterable[Partition]) -> dict[str, int]:
        wanted = {f"{each.topic}.offsets": each.number + 1 for each in sorted(partitions)}
        return {name: count for name, count in wanted.items() if (self.room or {}).get(name, 0) < count}

    def make_room(self, partitions: Iterable[Partition]) -> dict[Partition, NotUsable]:
        assert self.room is not None
        refused = {each: self.no_room[each] for each in partitions if each in self.no_room}
        self.room |= self.lacking(each for each in partitions if each not in refused)
        return refused

    def refuse_foreign_members(self) -> None:
        self.when_asked()

    def offset_retention(self) -> float | None:
        return self.keeps_offsets

    def refuse_short_transactions(self) -> None:
        if self.short_transactions is not None:
            raise self.short_transactions

    def refuse_forbidden_ids(self) -> None:
        if self.forbidden is not None:
            raise self.forbidden

    def fence(self, partitions: Iterable[Partition]) -> set[Partition]:
        self.fenced.append(list(partitions))
        return set(self.fenced[-1]) - self.unfenced if self.reachable else set()

    def renew(self, partitions: Iterable[Partition], offsets: TransactionalOffsetStore) -> set[Partition]:
        reached = self.fence(partitions)
        for partition, at in offsets.load(sorted(reached), stable=True).items():
            if not at.corrupt:
                self.save(partition, at.offset, at.metadata)
        return reached


class FakeCluster:
    """A cluster for a preflight. It allows everything and has no faults until a test changes that."""

    def __init__(self) -> None:
        self.tools = KafkaTools("there:9092")
        self.versions = {"OffsetFetch": 10, "TxnOffsetCommit": 5, "InitProducerId": 5, "Metadata": 13, "Produce": 13}
        self.broker_settings: dict[str, str] | None = {"offsets.retention.minutes": "10080"}
        self.rights: dict[str, frozenset[str]] = {}
        self.replicas = 3
        self.settings: dict[str, dict[str, str]] = {}
        self.commits: list[float | None] = []
        self.partitions: dict[str, int] = {}
        """The partition counts of topics with more than one partition."""
        self.gone: set[str] = set()
        self.name = "one"

    def id(self) -> str:
        return self.name

    def size(self) -> int:
        return self.replicas

    def brokers(self) -> BrokerFacts:
        return BrokerFacts(self.versions, self.broker_settings)

    def topics(self, names: Collection[str]) -> dict[str, TopicFacts]:
        kept = {"retention.ms": "604800000", "cleanup.policy": "delete"}
        return {
            name: TopicFacts(
                self.rights.get(name), self.replicas, kept | self.settings.get(name, {}), self.partitions.get(name, 1)
            )
            for name in names
            if name not in self.gone
        }

    def group_rights(self, group: str) -> frozenset[str] | None:
        return self.rights.get(group)

    def newest_commit(self) -> float | None:
        return self.commits.pop(0) if self.commits else None


class FakeRounds:
    """Runs rounds by calling a function. An unending round ends when it is cancelled."""

    def __init__(self, act: Callable[[Sequence[Assignment]], Result], slots: int = 2, unending: bool = False) -> None:
        self.slots = slots
        self.unending = unending
        self.rounds: list[list[Assignment]] = []
        self.cancelled = self.stopped = self.warm = False
        self.kind: type[FakeRound] = FakeRound
        self._act = act

    def warm_up(self) -> None:
        self.warm = True

    def submit(self, assignments: Sequence[Assignment]) -> FakeRound:
        self.rounds.append(list(assignments))
        return self.kind(self, self._act(assignments))

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


class SimulatedRounds(FakeRounds):
    """Rounds that work until their deadline or until their tasks are fenced."""

    def __init__(self, kafka: DriverKafka, time: SimulatedTime, then: Callable[[], object] = lambda: None) -> None:
        super().__init__(works(kafka, then))
        self.kafka, self.time = kafka, time
        self.outcomes: dict[Partition, Outcome] = {}
        """How the tasks report the partitions that are not done."""

    def submit(self, assignments: Sequence[Assignment]) -> FakeRound:
        self.rounds.append(list(assignments))
        return SimulatedRound(self, self._act(assignments), self.time.now + assignments[0].seconds)


class SimulatedRound(FakeRound):
    def __init__(self, rounds: SimulatedRounds, result: Result, deadline: float) -> None:
        super().__init__(rounds, result)
        self._simulated, self._deadline = rounds, deadline
        self._fences = len(rounds.kafka.fenced)

    def wait(self, seconds: float) -> bool:
        ends = len(self._simulated.kafka.fenced) > self._fences
        if not ends:
            self._simulated.time.pass_by(seconds)
        return ends or self._simulated.time.now >= self._deadline

    def receipts(self) -> list[Receipt]:
        outcomes = self._simulated.outcomes
        return [replace(each, outcome=outcomes.get(each.partition, each.outcome)) for each in super().receipts()]


def forget(kafka: FakeKafka, partition: Partition, out_of_range: str = "error") -> OffsetRange:
    """Let the next task find only what the store `none` tells it; return its range as the driver plans it."""
    end = len(kafka.source[partition])
    at = PartitionOffsets(partition, "", Watermarks(0, end, end), kafka.committed[partition])
    policy = StartPolicy("error", out_of_range, keeps=False)
    planned = decide(at, policy, first_seen=None, had_offset_in=None, is_new=False, cut=None)
    task_config = make_task_config(Guarantee.AT_LEAST_ONCE, offset_store=Plugin("none"))
    store = TaskClients(task_config, PLAIN, ranges=[planned]).offsets()
    kafka.committed = dict(store.load([partition], stable=True))
    return planned


def config(*assignments: str) -> Config:
    """Load a configuration that differs from the defaults in these assignments."""
    flags = ["group.id=g", "source.topics=raw", "sink.topic=clean", "dead.letters.topic=dead"]
    return load(None, [*flags, "kafka.bootstrap.servers=nowhere:9092", *assignments], {})


def service(
    kafka: DriverKafka,
    rounds: FakeRounds,
    settings: Config | None = None,
    stop: Stop | None = None,
    *,
    runtime: Runtime = Runtime(timings=IMPATIENT),  # noqa: B008  # it holds nothing
    start: Callable[[], Rounds] | None = None,
    tracker: StatusTracker | None = None,
) -> Service:
    """Make a service on a fake Kafka that never waits long for a fence."""
    return Service(
        settings or config(),
        kafka.clients,
        start or (lambda: rounds),
        stop=stop or Stop(),
        tracker=tracker or StatusTracker("g", [log.write], runtime, about=About(sink="clean")),
        runtime=runtime,
    )
