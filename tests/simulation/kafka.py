"""
A model of a Kafka cluster: logs, transaction coordinators, the offsets of groups. Requests take no time here.

Each method is what a broker does when a request arrives; the answer is a value, or one of Kafka's error codes. How
requests travel, get lost or come late is the matter of `tests.simulation.network`. The model passes the same
conformance tests as a real broker (`tests/simulation/conformance.py`).

What is beside the protocol, for whoever judges a schedule: each record and each offset carries the `serial` of the
transaction that its writer meant.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaError

from app.model import Partition
from tests.simulation.scheduler import EPOCH

LAST_EPOCH = 32_766
NO_SERIAL = 0
EXPIRY_SECONDS = 5.0
FENCE_SECONDS = 0.01
"""The longest time between the begin of a fence and its effect."""

Code = int
"""One of Kafka's error codes."""
OK: Code = 0
NOT_COORDINATOR = KafkaError.NOT_COORDINATOR
NOT_LEADER = KafkaError.NOT_LEADER_FOR_PARTITION
CONCURRENT = KafkaError.CONCURRENT_TRANSACTIONS
PRODUCER_FENCED = KafkaError.PRODUCER_FENCED
UNKNOWN = KafkaError.UNKNOWN
INVALID_EPOCH = KafkaError.INVALID_PRODUCER_EPOCH
INVALID_STATE = KafkaError.INVALID_TXN_STATE
UNKNOWN_MAPPING = KafkaError.INVALID_PRODUCER_ID_MAPPING
OUT_OF_ORDER = KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
UNSTABLE = KafkaError.UNSTABLE_OFFSET_COMMIT
UNKNOWN_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART


def milliseconds(now: float) -> int:
    """Return the timestamp of a simulated time."""
    return int((EPOCH + now) * 1000)


class Clock(Protocol):
    """What the model needs of time: to do something later, such as writing markers."""

    now: float

    def after(self, seconds: float, act: Callable[[], object]) -> None: ...


class Fate(StrEnum):
    """What became of a record or an offset."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(slots=True)
class Entry:
    """A record in a log; `producer` is -1 outside transactions. A marker has no value and is `control`."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = 0
    producer: int = -1
    serial: int = NO_SERIAL
    fate: Fate = Fate.COMMITTED
    control: bool = False
    leader_epoch: int = 0


class Batch(NamedTuple):
    """Records of one producer for one partition, with their first sequence number."""

    producer: int
    epoch: int
    first: int
    records: Sequence[Entry]
    transactional_id: str | None


class Log:
    """One partition."""

    def __init__(self, partition: Partition, *, append_time: bool) -> None:
        self.partition, self.append_time = partition, append_time
        self.start = 0
        self._base = 0
        self._entries: list[Entry] = []
        self.has_leader = True
        self.leader_epoch = 0
        self.ongoing: dict[int, int] = {}
        """The first offset of the open transaction of each producer."""
        self._producers: dict[int, tuple[int, int]] = {}
        """The epoch of each producer and the sequence number after its last record."""
        self.cuts: list[int] = []
        """Where the log ended when each later leader was elected."""
        self.grown: list[Callable[[], object]] = []
        """Called when more can be read."""

    @property
    def end(self) -> int:
        """The high watermark."""
        return self._base + len(self._entries)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.ongoing.values(), default=self.end)

    def __getitem__(self, offset: int) -> Entry:
        return self._entries[offset - self._base]

    def append(self, entry: Entry) -> int:
        entry.leader_epoch = self.leader_epoch
        self._entries.append(entry)
        self._tell()
        return self.end - 1

    def _tell(self) -> None:
        for tell in self.grown:
            tell()

    def produce(self, batch: Batch, verify: Callable[[Batch], Code], now: float) -> Code:
        if not self.has_leader:
            return NOT_LEADER
        epoch, following = self._producers.get(batch.producer, (-1, 0))
        if batch.epoch < epoch:
            return INVALID_EPOCH
        if batch.epoch == epoch and batch.first < following:
            return OK  # a batch that was sent again
        if batch.first != (following if batch.epoch == epoch else 0):
            return OUT_OF_ORDER
        in_transaction = batch.transactional_id is not None
        if in_transaction:
            # KIP-890 part 1: whether the transaction is open is asked only if none of this epoch seems to be open here.
            begins = batch.producer not in self.ongoing
            if (begins or batch.epoch > epoch) and (code := verify(batch)) != OK:
                return code
            self.ongoing.setdefault(batch.producer, self.end)
        self._producers[batch.producer] = batch.epoch, batch.first + len(batch.records)
        for each in batch.records:
            each.producer = batch.producer
            each.fate = Fate.OPEN if in_transaction else Fate.COMMITTED
            if self.append_time or not each.timestamp:  # librdkafka reads 0 as "now"
                each.timestamp = milliseconds(now)
            self.append(each)
        return OK

    def knows(self, producer: int, epoch: int) -> Code:
        """Return whether a producer may still write."""
        return INVALID_EPOCH if epoch < self._producers.get(producer, (-1, 0))[0] else OK

    def mark(self, producer: int, epoch: int, fate: Fate) -> set[int] | None:
        """Write the end of a transaction; return the serials that it decides, None if the partition has no leader."""
        if not self.has_leader:
            return None
        last, following = self._producers.get(producer, (-1, 0))
        if epoch < last:
            return set()
        self._producers[producer] = epoch, (following if epoch == last else 0)
        first, serials = self.ongoing.pop(producer, self.end), set[int]()
        for offset in range(max(first, self._base), self.end):
            entry = self[offset]
            if entry.producer == producer and entry.fate is Fate.OPEN:
                entry.fate = fate
                serials.add(entry.serial)
        self.append(Entry(None, producer=producer, control=True))
        return serials

    def abort(self, producer: int) -> set[int] | None:
        """Write the end of a transaction, with its producer's epoch here."""
        return self.mark(producer, self._producers[producer][0], Fate.ABORTED)

    def open_serials(self, producer: int) -> set[int]:
        """Return the transactions of a producer that are open here."""
        first = self.ongoing.get(producer, self.end)
        entries = (self[offset] for offset in range(max(first, self._base), self.end))
        return {each.serial for each in entries if each.producer == producer and each.fate is Fate.OPEN}

    def delete_before(self, offset: int) -> None:
        """Let retention delete records."""
        self.start = max(self.start, min(offset, self.stable))

    def cut(self, offset: int) -> None:
        """Lose the end of the log in an unclean election."""
        del self._entries[max(0, offset - self._base) :]
        self.ongoing = {producer: first for producer, first in self.ongoing.items() if first < offset}
        self.elect()

    def elect(self) -> None:
        self.leader_epoch += 1
        self.cuts.append(self.end)

    def gets_leader(self) -> None:
        if not self.has_leader:
            self.has_leader = True
            self.elect()
            self._tell()

    def end_of_epoch(self, epoch: int) -> int:
        """Return where the log of a leader ended (KIP-320)."""
        return min(self.cuts[epoch:], default=self.end)


class State(StrEnum):
    """The state of a transactional id."""

    EMPTY = auto()
    ONGOING = auto()
    COMMITTING = auto()
    ABORTING = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(slots=True)
class Transaction:
    """What a coordinator knows of a transactional id."""

    producer: int
    epoch: int
    timeout: float
    state: State = State.EMPTY
    partitions: set[Partition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    number: int = 0
    """How many transactions it has begun."""
    left: int = 0
    """How many markers are not written."""
    fencing: bool = False
    """Whether a fence has begun, but has not fenced its owner yet."""

    @property
    def ending(self) -> bool:
        return self.state in (State.COMMITTING, State.ABORTING)

    @property
    def over(self) -> bool:
        """Whether nothing will end it any more where it is still open."""
        return self.state is not State.ONGOING and not self.ending


class Stored(NamedTuple):
    """A committed offset."""

    offset: int
    metadata: str
    serial: int = NO_SERIAL
    at: float = 0.0


class GroupOffsets:
    """The committed and pending offsets of one group."""

    def __init__(self) -> None:
        self.stored: dict[Partition, Stored] = {}
        self.pending: dict[int, dict[Partition, Stored]] = {}
        self.has_coordinator = True
        self._epochs: dict[int, int] = {}
        self._serials: defaultdict[int, set[int]] = defaultdict(set)
        """The transactions whose offsets are pending, by producer."""

    def commit(self, offsets: Mapping[Partition, Stored]) -> Code:
        if not self.has_coordinator:
            return NOT_COORDINATOR
        self.stored |= offsets
        return OK

    def commit_in(self, batch: Batch, offsets: Mapping[Partition, Stored], verify: Callable[[Batch], Code]) -> Code:
        if not self.has_coordinator:
            return NOT_COORDINATOR
        epoch = self._epochs.get(batch.producer, -1)
        if batch.epoch < epoch:
            return INVALID_EPOCH
        begins = batch.producer not in self.pending
        if (begins or batch.epoch > epoch) and (code := verify(batch)) != OK:  # as in a log
            return code
        self._epochs[batch.producer] = batch.epoch
        self.pending.setdefault(batch.producer, {}).update(offsets)
        self._serials[batch.producer].update(each.serial for each in offsets.values())
        return OK

    def mark(self, producer: int, epoch: int, fate: Fate) -> set[int] | None:
        """Do what `Log.mark` does."""
        if not self.has_coordinator:
            return None
        if epoch < self._epochs.get(producer, -1):
            return set()
        self._epochs[producer] = epoch
        pending = self.pending.pop(producer, {})
        if fate is Fate.COMMITTED:
            self.stored |= pending
        return self._serials.pop(producer, set())

    def open_serials(self, producer: int) -> set[int]:
        """Do what `Log.open_serials` does."""
        return set(self._serials.get(producer, ()))

    def unstable(self, partitions: Iterable[Partition]) -> bool:
        wanted = set(partitions)
        return any(not wanted.isdisjoint(pending) for pending in self.pending.values())


@dataclass(slots=True)
class TopicState:
    """A topic: its id and its partitions."""

    name: str
    id: str
    logs: list[Log] = field(repr=False)
    append_time: bool = False
    """Whether records get the time at which they are written."""


class Cluster:
    """
    A cluster.

    Args:
        clock: the schedule's time.
        marker_seconds: returns how long the next marker takes.
    """

    def __init__(self, clock: Clock, marker_seconds: Callable[[], float]) -> None:
        self.clock = clock
        self.topics: dict[str, TopicState] = {}
        self.transactions: dict[str, Transaction] = {}
        self.groups: defaultdict[str, GroupOffsets] = defaultdict(GroupOffsets)
        self.silent_coordinators: set[str] = set()
        """The transactional ids whose coordinator is moving."""
        self.down = False
        """Whether no broker answers."""
        self.skips_markers = True
        """Whether a partition without a leader loses its markers, as in Kafka 4; otherwise they are sent later."""
        self.longest_seconds = math.inf
        """How long a transaction may stay open, whatever its producer has asked for."""
        self.keeps_offsets_minutes = 10_080
        """How long the offset of a group without members is kept after its commit."""
        self.first_epoch = 0
        """The epoch that a new producer id begins with; close to the last one, ids run out soon."""
        self.marked: Callable[[Partition | str, set[int], Fate], None] = lambda *_: None
        """Called after a marker was written: with the partition or the group, what it decided, and how."""
        self.skipped: Callable[[Partition | str, set[int], Fate], None] = lambda *_: None
        """Called when a marker was not written for want of a leader: the transaction hangs there."""
        self.offset_sent: Callable[[int], None] = lambda _: None
        """Called when a transaction gets an offset."""
        self._marker_seconds = marker_seconds
        self._next_producer = 1_000

    def expire_offsets(self) -> None:
        """Delete old offsets, now and again every few seconds."""
        oldest = self.clock.now - 60.0 * self.keeps_offsets_minutes
        for group in self.groups.values():
            group.stored = {each: stored for each, stored in group.stored.items() if stored.at >= oldest}
        self.clock.after(EXPIRY_SECONDS, self.expire_offsets)

    # Topics

    def create(self, name: str, partitions: int, *, append_time: bool = False) -> TopicState:
        self.topics[name] = topic = TopicState(name, f"id-{len(self.topics)}-{name}", [], append_time)
        self.grow(name, partitions)
        return topic

    def grow(self, name: str, partitions: int) -> None:
        topic = self.topics[name]
        for number in range(len(topic.logs), partitions):
            topic.logs.append(Log(Partition(name, number), append_time=topic.append_time))

    def log(self, partition: Partition) -> Log:
        return self.topics[partition.topic].logs[partition.number]

    # Transactions

    def init(self, name: str, timeout: float) -> tuple[int, int] | Code:
        """Answer InitProducerId with the producer id and the epoch."""
        if name in self.silent_coordinators:
            return NOT_COORDINATOR
        transaction = self.transactions.get(name)
        if transaction is None:
            self.transactions[name] = transaction = Transaction(self._new_producer(), self.first_epoch, timeout)
            return transaction.producer, transaction.epoch
        if transaction.ending or transaction.fencing:
            return CONCURRENT
        if transaction.state is State.ONGOING:
            self._fence(transaction)
            return CONCURRENT
        transaction.timeout, transaction.state = timeout, State.EMPTY
        if transaction.epoch >= LAST_EPOCH:
            transaction.producer, transaction.epoch = self._new_producer(), 0
        else:
            transaction.epoch += 1
        return transaction.producer, transaction.epoch

    def _fence(self, transaction: Transaction) -> None:
        """Fence the owner and end its transaction, a moment later: meanwhile the broker's other threads answer requests."""

        def fence() -> None:
            transaction.fencing = False
            if transaction.state is State.ONGOING:
                transaction.epoch += 1
                self._end(transaction, Fate.ABORTED)

        transaction.fencing = True
        self.clock.after(min(self._marker_seconds(), FENCE_SECONDS), fence)

    def _new_producer(self) -> int:
        self._next_producer += 1
        return self._next_producer

    def new_idempotent(self) -> tuple[int, int]:
        """Answer InitProducerId without a transactional id."""
        return self._new_producer(), 0

    def _owned(self, name: str, producer: int, epoch: int) -> Transaction | Code:
        if name in self.silent_coordinators:
            return NOT_COORDINATOR
        transaction = self.transactions.get(name)
        if transaction is None or transaction.producer != producer:
            return UNKNOWN_MAPPING
        return transaction if transaction.epoch == epoch else PRODUCER_FENCED

    def add_partitions(
        self, name: str, producer: int, epoch: int, partitions: Iterable[Partition] = (), groups: Iterable[str] = ()
    ) -> Code:
        """Answer AddPartitionsToTxn and AddOffsetsToTxn."""
        transaction = self._owned(name, producer, epoch)
        if isinstance(transaction, int):
            return transaction
        if transaction.fencing:
            return UNKNOWN
        if transaction.ending:
            return CONCURRENT
        if transaction.state is not State.ONGOING:
            transaction.state = State.ONGOING
            transaction.partitions, transaction.groups = set(), set()
            transaction.number += 1
            self._abort_when_late(transaction, transaction.number)
        transaction.partitions.update(partitions)
        transaction.groups.update(groups)
        return OK

    def _abort_when_late(self, transaction: Transaction, number: int) -> None:
        def abort() -> None:
            ongoing = transaction.state is State.ONGOING and transaction.number == number
            if ongoing and not transaction.fencing:
                self._fence(transaction)

        self.clock.after(min(transaction.timeout, self.longest_seconds), abort)

    def end(self, name: str, producer: int, epoch: int, fate: Fate) -> Code:
        """Answer EndTxn."""
        transaction = self._owned(name, producer, epoch)
        if isinstance(transaction, int):
            return transaction
        if transaction.fencing and fate is Fate.COMMITTED:
            return UNKNOWN
        wanted = (State.COMMITTED, State.COMMITTING) if fate is Fate.COMMITTED else (State.ABORTED, State.ABORTING)
        if transaction.state is State.ONGOING:
            self._end(transaction, fate)
            return OK
        if transaction.state is wanted[0]:
            return OK
        return CONCURRENT if transaction.state is wanted[1] else INVALID_STATE

    def _end(self, transaction: Transaction, fate: Fate) -> None:
        transaction.state = State.COMMITTING if fate is Fate.COMMITTED else State.ABORTING
        places: list[Partition | str] = [*sorted(transaction.partitions), *sorted(transaction.groups)]
        transaction.left = len(places)
        for place in places:
            self._mark_later(transaction, place, fate)
        if not places:
            self._marked(transaction, fate)

    def _mark_later(self, transaction: Transaction, place: Partition | str, fate: Fate) -> None:
        def mark() -> None:
            target = self.groups[place] if isinstance(place, str) else self.log(place)
            serials = target.mark(transaction.producer, transaction.epoch, fate)
            if serials is None and not self.skips_markers:
                self._mark_later(transaction, place, fate)
                return
            if serials is None:
                self.skipped(place, target.open_serials(transaction.producer), fate)
            self.marked(place, serials or set(), fate)
            transaction.left -= 1
            if not transaction.left:
                self._marked(transaction, fate)

        self.clock.after(self._marker_seconds(), mark)

    def _marked(self, transaction: Transaction, fate: Fate) -> None:
        transaction.state = State.COMMITTED if fate is Fate.COMMITTED else State.ABORTED

    def abort(self, partition: Partition, producer: int) -> None:
        """Do what `kafka-transactions.sh abort` does: write a marker, without the coordinator."""
        self.marked(partition, self.log(partition).abort(producer) or set(), Fate.ABORTED)

    def _verified(self, place: Partition | str) -> Callable[[Batch], Code]:
        """Return what asks the coordinator whether a producer's transaction includes a partition or group."""

        def verify(batch: Batch) -> Code:
            assert batch.transactional_id is not None
            transaction = self._owned(batch.transactional_id, batch.producer, batch.epoch)
            if isinstance(transaction, int):
                return INVALID_EPOCH if transaction == PRODUCER_FENCED else transaction
            if transaction.ending:
                return CONCURRENT
            known = place in transaction.partitions or place in transaction.groups
            return OK if known and transaction.state is State.ONGOING else INVALID_STATE

        return verify

    # Records and offsets

    def produce(self, partition: Partition, batch: Batch) -> Code:
        return self.log(partition).produce(batch, self._verified(partition), self.clock.now)

    def write(self, partition: Partition, *values: bytes | None) -> None:
        """Append records without a producer."""
        for value in values:
            self.log(partition).append(Entry(value, timestamp=milliseconds(self.clock.now)))

    def commit_in(self, group: str, batch: Batch, offsets: Mapping[Partition, Stored]) -> Code:
        """Answer TxnOffsetCommit."""
        code = self.groups[group].commit_in(batch, offsets, self._verified(group))
        if code == OK:
            for each in offsets.values():
                self.offset_sent(each.serial)
        return code

    def commit(self, group: str, offsets: Mapping[Partition, Stored]) -> Code:
        """Answer OffsetCommit."""
        code = self.groups[group].commit(offsets)
        if code == OK:
            self.marked(group, set(), Fate.COMMITTED)
        return code

    def fetch_offsets(
        self, group: str, partitions: Sequence[Partition], *, stable: bool
    ) -> dict[Partition, Stored] | Code:
        """Answer OffsetFetch."""
        offsets = self.groups[group]
        if not offsets.has_coordinator:
            return NOT_COORDINATOR
        if stable and offsets.unstable(partitions):
            return UNSTABLE
        return {each: offsets.stored[each] for each in partitions if each in offsets.stored}
