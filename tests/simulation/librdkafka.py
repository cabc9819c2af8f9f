"""
The clients of confluent_kafka on the model of Kafka: their states, retries, back-offs and errors are librdkafka's.

They do what librdkafka 2.16 does as far as the product depends on it (docs/librdkafka.md). Requests are sent again after
`retry.backoff.ms` with its jitter of 20 %; a transactional id is asked for in the background every 500 ms, even after
`init_transactions` has given up.
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition

from app.model import NO_EPOCH, Partition
from tests.simulation import kafka
from tests.simulation.history import History
from tests.simulation.kafka import Batch, Cluster, Entry, Fate, Log, Stored
from tests.simulation.network import NO_ANSWER, Network, NoAnswer, TooLate
from tests.simulation.scheduler import Scheduler, SimFuture

TIMED_OUT, STATE, FATAL, FENCED, TRANSPORT = -185, -172, -150, -144, -195
PARTITION_EOF, AUTO_OFFSET_RESET = -191, -140
PID_RETRY_SECONDS = OFFSETS_RETRY_SECONDS = 0.5
CONCURRENT_RETRY_SECONDS = 0.02
USUAL_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 0.1, 1.0
IDLE_FACTOR = 6.0
"""How much longer than asked a consumer waits if nothing comes: a slow machine, and fewer steps for us."""
RETRIED = {kafka.NOT_COORDINATOR, kafka.NOT_LEADER, KafkaError.COORDINATOR_NOT_AVAILABLE}


@dataclass
class World:
    """What the clients of a schedule share."""

    scheduler: Scheduler
    network: Network
    history: History
    clusters: Mapping[str, Cluster]
    """The clusters by their `bootstrap.servers`."""
    serial: int = 0
    """The number of the last transaction that a writer began."""
    producers: int = 0

    def next_serial(self) -> int:
        self.serial += 1
        return self.serial

    def next_producer(self) -> int:
        self.producers += 1
        return self.producers


_world: World | None = None


def world() -> World:
    assert _world is not None, "no schedule runs"
    return _world


def use(new: World | None) -> None:
    """Make this the world of all clients made from now on."""
    global _world  # noqa: PLW0603  # one schedule runs at a time in a process
    _world = new


def _error(code: int, said: str | None = None, **kind: bool) -> KafkaException:
    return KafkaException(KafkaError(code, said, **kind))


class Client:
    """What all clients have: settings, a cluster, and the process that made them."""

    def __init__(self, config: Mapping[str, Any], logger: object = None) -> None:  # confluent-kafka's
        self._world = world()
        self._scheduler = self._world.scheduler
        self._scheduler.refuse_if_dead()
        self._config = config
        self._cluster = self._world.clusters[str(config["bootstrap.servers"])]
        self._process = self._scheduler.current.process

    def _ask(self, api: str, apply: Callable[[], Any], seconds: float) -> Any:
        """Ask once. Raises NoAnswer or TooLate."""
        return self._world.network.ask(self._process, self._cluster, api, apply, seconds)

    def _ask_until(
        self, api: str, apply: Callable[[], Any], seconds: float, again: frozenset[int] = frozenset()
    ) -> Any:
        """Ask again and again until there is an answer that is final; raise _TIMED_OUT if there is none in time."""
        until, pause = self._scheduler.now + seconds, USUAL_BACKOFF_SECONDS
        while (left := until - self._scheduler.now) > 0:
            try:
                answer = self._ask(api, apply, left)
            except NoAnswer:
                answer = kafka.NOT_COORDINATOR
            except TooLate:
                break
            if not isinstance(answer, int) or answer not in RETRIED | again:
                return answer
            self._scheduler.sleep(min(pause, max(0.0, until - self._scheduler.now)))
            pause = min(2 * pause, LONGEST_BACKOFF_SECONDS)
        raise _error(TIMED_OUT, f"{api} timed out")

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        names = [topic] if topic else list(self._cluster.topics)
        self._ask_until("Metadata", lambda: None, timeout if timeout >= 0 else 60.0)
        return SimpleNamespace(topics={name: None for name in names if name in self._cluster.topics}, cluster_id="c")

    def poll(self, timeout: float = 0) -> Any:
        if timeout > 0:
            self._scheduler.sleep(timeout)
        return None


class Phase(StrEnum):
    """The state of a producer."""

    NEW = auto()
    READY = auto()
    OPEN = auto()
    COMMITTING = auto()
    ABORTING = auto()
    BROKEN = auto()
    """Its transaction must be aborted."""
    FATAL = auto()


class FakeProducer(Client):
    """confluent_kafka.Producer."""

    def __init__(self, config: Mapping[str, Any], logger: object = None, **_: object) -> None:
        super().__init__(config, logger)
        self.name = config.get("transactional.id")
        self._number = self._world.next_producer()
        self._backoff = float(config.get("retry.backoff.ms", 100)) / 1000
        self._linger = float(config.get("linger.ms", 5)) / 1000
        self._id: tuple[int, int] | None = None
        self._phase = Phase.NEW
        self._error: KafkaError | None = None
        self._asking = False
        self._refused = TIMED_OUT
        """Why it has no id yet."""
        self._serial = kafka.NO_SERIAL
        self._added: set[Partition] = set()
        self._has_offsets = False
        self._sequence: dict[Partition, int] = defaultdict(int)
        self._queue: dict[Partition, list[Entry]] = {}
        self._flying: tuple[Partition, list[Entry]] | None = None
        self._pumping = False
        self._waiting: list[Any] = []
        """The threads that wait for the next answer."""
        self._undelivered: list[Entry] = []
        """Records that failed, and whose delivery reports have not been taken."""

    def __len__(self) -> int:
        return sum(map(len, self._queue.values())) + (len(self._flying[1]) if self._flying else 0)

    def _note(self, what: str, outcome: str = "") -> None:
        history = self._world.history
        if history.kept:
            history.note(f"{self._process.name} producer {self._number}", what, outcome)

    # Opening

    def init_transactions(self, timeout: float = -1) -> None:
        self._scheduler.refuse_if_dead()
        if self._phase is not Phase.NEW:
            raise self._of_state()
        until = self._scheduler.now + (timeout if timeout >= 0 else 120.0)
        self._ask_for_id()
        while self._id is None and self._error is None:
            if (left := until - self._scheduler.now) <= 0:
                raise _error(self._refused, "no producer id in time", retriable=True)
            self._wait(left)
        if self._error is not None:
            raise KafkaException(self._error)
        self._phase = Phase.READY

    def _ask_for_id(self) -> None:
        if self._asking or self._id is not None:
            return
        self._asking, me = True, weakref.ref(self)
        name, timeout = self.name, float(self._config.get("transaction.timeout.ms", 60_000)) / 1000
        cluster = self._cluster
        if timeout > 900:
            self._error = KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT)
            return

        def answered(answer: Any) -> None:
            if (producer := me()) is not None:
                producer._got_id(answer)

        ask = cluster.new_idempotent if name is None else lambda: cluster.init(name, timeout)
        self._world.network.post(self._process, cluster, "InitProducerId", ask, answered)

    def _got_id(self, answer: Any) -> None:
        self._asking = False
        if isinstance(answer, tuple):
            self._id = answer
            self._note("opened", f"id {answer[0]} epoch {answer[1]}")
        else:
            self._refused = TIMED_OUT if answer is NO_ANSWER else answer
            me = weakref.ref(self)

            def again() -> None:
                if (producer := me()) is not None:
                    producer._ask_for_id()

            self._scheduler.after(PID_RETRY_SECONDS, again, self._process)
        self._tell()

    # Waiting

    def _wait(self, seconds: float) -> None:
        self._waiting.append(self._scheduler.current)
        self._scheduler.park(seconds)

    def _tell(self) -> None:
        for thread in self._waiting:
            self._scheduler.wake(thread)
        self._waiting.clear()

    def _of_state(self) -> KafkaException:
        if self._error is not None and self._phase in (Phase.FATAL, Phase.BROKEN):
            return KafkaException(self._error)
        return _error(STATE, f"not possible while {self._phase}")

    # Records

    def begin_transaction(self) -> None:
        self._scheduler.refuse_if_dead()
        if self._phase is not Phase.READY:
            raise self._of_state()
        self._phase, self._serial = Phase.OPEN, self._world.next_serial()
        self._added, self._has_offsets = set(), False

    def produce(  # noqa: PLR0917  # confluent-kafka's
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        callback: object = None,  # confluent-kafka's
        on_delivery: object = None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        self._scheduler.refuse_if_dead()
        if self._phase is Phase.FATAL:
            raise _error(FATAL, "the producer has failed")
        if self.name is not None and self._phase is not Phase.OPEN:
            raise _error(STATE, f"not possible while {self._phase}")
        if partition < 0:
            partition = hash(key) % len(self._cluster.topics[topic].logs)
        entry = Entry(value, key, headers or (), timestamp, serial=self._serial)
        self._queue.setdefault(Partition(topic, partition), []).append(entry)
        self._pump_after(self._linger * self._scheduler.rng.random())

    def _pump_after(self, seconds: float) -> None:
        if self._pumping:
            return
        self._pumping, me = True, weakref.ref(self)

        def pump() -> None:
            if (producer := me()) is not None:
                producer._pumping = False
                producer._pump()

        self._scheduler.after(seconds, pump, self._process)

    def _pump(self) -> None:
        """Send the next batch of the queue, unless one is on its way."""
        if self._flying is not None or not self._queue or self._pumping:
            return None
        if self.name is None and self._id is None:
            self._ask_for_id()
            return self._pump_after(0.01)
        if self.name is not None and self._phase not in (Phase.OPEN, Phase.COMMITTING):
            return None
        if self.name is not None and (new := self._queue.keys() - self._added):
            return self._add(sorted(new))
        partition = next(iter(self._queue))
        self._flying = partition, self._queue.pop(partition)
        return self._fly()

    def _add(self, partitions: list[Partition]) -> None:
        name, (producer, epoch), cluster = self._known_name, self._known_id, self._cluster
        self._pumping = True
        me = weakref.ref(self)

        def answered(answer: Any) -> None:
            if (found := me()) is not None:
                found._pumping = False
                found._has_added(partitions, answer)

        self._world.network.post(
            self._process,
            cluster,
            "AddPartitionsToTxn",
            lambda: cluster.add_partitions(name, producer, epoch, partitions),
            answered,
        )

    def _has_added(self, partitions: list[Partition], answer: Any) -> None:
        if answer == kafka.OK:
            self._added.update(partitions)
            self._pump()
        elif answer is NO_ANSWER or answer in RETRIED:
            self._pump_after(self._jittered(self._backoff))
        elif answer == kafka.CONCURRENT:
            self._pump_after(CONCURRENT_RETRY_SECONDS)
        else:
            self._fail(answer)
        self._tell()

    def _fly(self) -> None:
        """Send the batch on its way, perhaps again."""
        if self._flying is None:
            return
        (partition, records), (producer, epoch), cluster = self._flying, self._known_id, self._cluster
        batch = Batch(producer, epoch, self._sequence[partition], records, self.name)
        me = weakref.ref(self)

        def answered(answer: Any) -> None:
            if (found := me()) is not None:
                found._has_flown(records, answer)

        self._world.network.post(self._process, cluster, "Produce", lambda: cluster.produce(partition, batch), answered)

    def _has_flown(self, records: list[Entry], answer: Any) -> None:
        if self._flying is None or self._flying[1] is not records:  # purged
            return
        if answer == kafka.OK:
            self._sequence[self._flying[0]] += len(records)
            self._flying = None
            self._pump()
        elif answer is NO_ANSWER or answer in RETRIED or answer == kafka.CONCURRENT:
            me = weakref.ref(self)

            def again() -> None:
                if (found := me()) is not None and found._flying is not None and found._flying[1] is records:
                    found._fly()

            self._scheduler.after(self._jittered(self._backoff), again, self._process)
        else:
            self._undelivered += records
            self._flying = None
            self._fail(answer)
        self._tell()

    def _jittered(self, seconds: float) -> float:
        return seconds * self._scheduler.rng.uniform(0.8, 1.2)

    def _fail(self, code: int) -> None:
        """Note that the transaction, or the producer, is lost."""
        self._note("failed", KafkaError(code).name())
        if code in (kafka.PRODUCER_FENCED, kafka.INVALID_EPOCH):
            self._error, self._phase = KafkaError(FENCED, "fenced", fatal=True), Phase.FATAL
        elif code in (kafka.UNKNOWN_MAPPING, kafka.INVALID_STATE):
            self._error, self._phase = KafkaError(code, "lost", fatal=True), Phase.FATAL
        else:
            self._error, self._phase = KafkaError(code, "lost", txn_requires_abort=True), Phase.BROKEN
        self._drop_queue()
        self._tell()

    def _drop_queue(self) -> None:
        self._undelivered += chain.from_iterable(self._queue.values())
        self._queue.clear()

    def poll(self, timeout: float = 0) -> None:
        super().poll(timeout)
        self._report()

    def _report(self) -> None:
        """Call back for each record that failed. Outside transactions, nothing else tells of it."""
        failed, self._undelivered = self._undelivered, []
        if (report := self._config.get("on_delivery")) is not None:
            for _ in failed:
                report(self._error, None)

    def flush(self, timeout: float = -1) -> int:
        self._scheduler.refuse_if_dead()
        until = self._scheduler.now + (timeout if timeout >= 0 else 300.0)
        self._pump()
        while len(self) and self._phase not in (Phase.FATAL, Phase.BROKEN):
            if (left := until - self._scheduler.now) <= 0:
                break
            self._wait(left)
        self._report()
        return len(self)

    def purge(self, *, blocking: bool = True) -> None:  # confluent-kafka's
        lost = len(self)
        self._drop_queue()
        if self._flying is not None:
            self._undelivered += self._flying[1]
            self._flying = None
        if lost and (self._phase is Phase.OPEN or self.name is None):
            self._error, self._phase = KafkaError(-152, "purged", txn_requires_abort=True), Phase.BROKEN
        self._tell()

    # The end of a transaction

    @property
    def _known_id(self) -> tuple[int, int]:
        assert self._id is not None
        return self._id

    @property
    def _known_name(self) -> str:
        assert self.name is not None
        return str(self.name)

    def send_offsets_to_transaction(
        self,
        positions: Sequence[TopicPartition],
        group_metadata: str,
        timeout: float = -1,  # see below
    ) -> None:
        """Send offsets. While a coordinator is silent it ignores its timeout (librdkafka #5456)."""
        self._scheduler.refuse_if_dead()
        if self._phase is not Phase.OPEN:
            raise self._of_state()
        name, (producer, epoch), cluster = self._known_name, self._known_id, self._cluster
        at = self._scheduler.now
        offsets = {
            Partition(each.topic, each.partition): Stored(each.offset, each.metadata or "", self._serial, at)
            for each in positions
        }
        if not self._has_offsets:
            self._must("AddOffsetsToTxn", lambda: cluster.add_partitions(name, producer, epoch, (), [group_metadata]))
            self._has_offsets = True
        batch = Batch(producer, epoch, 0, (), name)
        self._must("TxnOffsetCommit", lambda: cluster.commit_in(group_metadata, batch, offsets))

    def _must(self, api: str, apply: Callable[[], Any]) -> None:
        """Send a request of the open transaction until it succeeds; raise what ends the transaction."""
        while True:
            try:
                code = self._ask(api, apply, math.inf)
            except NoAnswer:
                code = kafka.NOT_COORDINATOR
            if self._phase is not Phase.OPEN:
                raise self._of_state()
            if code == kafka.OK:
                return
            if code not in RETRIED and code != kafka.CONCURRENT:
                self._fail(code)
                raise self._of_state()
            wait = CONCURRENT_RETRY_SECONDS if code == kafka.CONCURRENT else OFFSETS_RETRY_SECONDS
            self._scheduler.sleep(self._jittered(wait))

    def commit_transaction(self, timeout: float = -1) -> None:
        self._scheduler.refuse_if_dead()
        until = self._scheduler.now + (timeout if timeout >= 0 else 120.0)
        if self._phase not in (Phase.OPEN, Phase.COMMITTING):
            raise self._of_state()
        self._phase = Phase.COMMITTING
        self.flush(max(0.0, until - self._scheduler.now))
        if self._error is not None:
            raise KafkaException(self._error)
        if len(self):
            raise _error(TIMED_OUT, "records are not acknowledged", retriable=True)
        self._end(Fate.COMMITTED, until)

    def abort_transaction(self, timeout: float = -1) -> None:
        self._scheduler.refuse_if_dead()
        until = self._scheduler.now + (timeout if timeout >= 0 else 120.0)
        if self._phase not in (Phase.OPEN, Phase.BROKEN, Phase.ABORTING):
            raise self._of_state()
        self._phase = Phase.ABORTING
        self._queue.clear()
        self._flying = None
        self._end(Fate.ABORTED, until)

    def _end(self, fate: Fate, until: float) -> None:
        name, (producer, epoch), cluster = self._known_name, self._known_id, self._cluster
        if self._added or self._has_offsets:
            while True:
                left = until - self._scheduler.now
                if left <= 0:
                    raise _error(TIMED_OUT, "EndTxn timed out", retriable=True)
                try:
                    code = self._ask("EndTxn", lambda: cluster.end(name, producer, epoch, fate), left)
                except NoAnswer:
                    code = kafka.NOT_COORDINATOR
                except TooLate:
                    continue
                if code == kafka.OK:
                    break
                if code not in RETRIED and code != kafka.CONCURRENT:
                    self._fail(code)
                    raise self._of_state()
                self._scheduler.sleep(min(self._jittered(self._backoff), max(0.0, until - self._scheduler.now)))
        self._note("committed" if fate is Fate.COMMITTED else "aborted", f"transaction {self._serial}")
        self._phase, self._error = Phase.READY, None


@dataclass(slots=True)
class FakeMessage:
    """confluent_kafka.Message: a record, or an error in place of one."""

    _topic: str
    _partition: int
    _offset: int
    _entry: Entry | None = None
    _error: KafkaError | None = None

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return None if self._entry is None else self._entry.key

    def value(self) -> bytes | None:
        return None if self._entry is None else self._entry.value

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        return None if self._entry is None else list(self._entry.headers) or None

    def timestamp(self) -> tuple[int, int]:
        return 1, -1 if self._entry is None else self._entry.timestamp

    def leader_epoch(self) -> int | None:
        return None if self._entry is None else self._entry.leader_epoch


class Position(NamedTuple):
    """An answer about an offset: confluent_kafka's TopicPartition does not let us set an error."""

    topic: str
    partition: int
    offset: int
    metadata: str | None = None
    error: KafkaError | None = None


@dataclass(slots=True)
class _Reading:
    """Where a consumer reads a partition."""

    offset: int
    epoch: int = NO_EPOCH
    told_end: int = -1
    failed: bool = False


class FakeConsumer(Client):
    """confluent_kafka.Consumer. It reads the logs directly: fetches are not the protocol that is tested."""

    def __init__(self, config: Mapping[str, Any], logger: object = None) -> None:
        super().__init__(config, logger)
        self._group = str(config.get("group.id", ""))
        self._committed_only = config.get("isolation.level", "read_committed") == "read_committed"
        self._tells_ends = bool(config.get("enable.partition.eof"))
        self._resets = config.get("auto.offset.reset", "error")
        self._reading: dict[Partition, _Reading] = {}
        self._waiting: Any = None
        self._watched: set[Partition] = set()
        self._closed = False

    def assign(self, positions: Iterable[TopicPartition]) -> None:
        self._reading.clear()
        self.incremental_assign(positions)

    def incremental_assign(self, positions: Iterable[TopicPartition]) -> None:
        self._scheduler.refuse_if_dead()
        for each in positions:
            partition = Partition(each.topic, each.partition)
            self._reading[partition] = _Reading(max(0, each.offset))
            if partition not in self._watched:
                self._watch(partition)

    def _watch(self, partition: Partition) -> None:
        """Be told when the log of a partition grows, as long as this consumer lives."""
        self._watched.add(partition)
        me = weakref.ref(self)
        self._cluster.log(partition).grown.append(lambda: None if (it := me()) is None else it._grown())

    def incremental_unassign(self, positions: Iterable[TopicPartition]) -> None:
        self._scheduler.refuse_if_dead()
        for each in positions:
            self._reading.pop(Partition(each.topic, each.partition), None)

    def seek(self, position: TopicPartition) -> None:
        """Seek to a position whose leader epoch is checked."""
        epoch = NO_EPOCH if position.leader_epoch is None else position.leader_epoch
        self._reading[Partition(position.topic, position.partition)] = _Reading(position.offset, epoch)

    def _grown(self) -> None:
        if self._waiting is not None:
            self._scheduler.wake(self._waiting)
            self._waiting = None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[FakeMessage]:
        scheduler = self._scheduler
        scheduler.refuse_if_dead()
        if self._closed:
            raise RuntimeError("Consumer closed")
        until = scheduler.now + (timeout * IDLE_FACTOR if timeout >= 0 else 60.0)
        while True:
            if found := self._fetch(num_messages):
                scheduler.sleep(scheduler.rng.expovariate(1 / 0.005))
                return found
            if (left := until - scheduler.now) <= 0:
                return []
            self._waiting = scheduler.current
            scheduler.park(left)

    def _fetch(self, most: int) -> list[FakeMessage]:
        if self._process.cut_off or self._cluster.down:
            return []
        found: list[FakeMessage] = []
        partitions = list(self._reading)
        self._scheduler.rng.shuffle(partitions)
        for partition in partitions:
            log, reading = self._cluster.log(partition), self._reading[partition]
            if log.has_leader and not reading.failed and len(found) < most:
                found += self._read(log, reading, most - len(found))
        return found

    def _read(self, log: Log, reading: _Reading, most: int) -> list[FakeMessage]:
        topic, number = log.partition
        if (
            reading.epoch not in (NO_EPOCH, log.leader_epoch)
            and (end := log.end_of_epoch(reading.epoch)) < reading.offset
        ):
            said = f"log truncation detected at offset {reading.offset} (leader epoch {reading.epoch}): end offset is {end}"
            return self._failed(log, reading, said)
        if not log.start <= reading.offset <= log.end:
            if self._resets == "error":
                return self._failed(log, reading, "offset out of range")
            reading.offset = log.start
        end, at = log.stable if self._committed_only else log.end, reading.offset
        found: list[FakeMessage] = []
        most = min(most, self._scheduler.rng.randint(1, 8))
        while at < end and len(found) < most:
            entry = log[at]
            visible = not entry.control and (entry.fate is Fate.COMMITTED or not self._committed_only)
            if visible:
                found.append(FakeMessage(topic, number, at, entry))
            at, reading.epoch = at + 1, entry.leader_epoch
        reading.offset = at
        if at >= end and self._tells_ends and reading.told_end != at:
            reading.told_end = at
            found.append(FakeMessage(topic, number, at, _error=KafkaError(PARTITION_EOF)))
        return found

    def _failed(self, log: Log, reading: _Reading, said: str) -> list[FakeMessage]:
        reading.failed = True
        error = KafkaError(AUTO_OFFSET_RESET, said)
        return [FakeMessage(log.partition.topic, log.partition.number, reading.offset, _error=error)]

    def committed(self, positions: Sequence[TopicPartition], timeout: float = -1) -> list[Position]:
        wanted = [Partition(each.topic, each.partition) for each in positions]
        group, cluster, stable = self._group, self._cluster, self._committed_only
        found = self._ask_until(
            "OffsetFetch",
            lambda: cluster.fetch_offsets(group, wanted, stable=stable),
            timeout if timeout >= 0 else 60.0,
            frozenset({kafka.UNSTABLE}),
        )
        if isinstance(found, int):
            raise _error(found)
        return [
            Position(*each, found[each].offset, found[each].metadata) if each in found else Position(*each, -1001)
            for each in wanted
        ]

    def commit(self, offsets: Sequence[TopicPartition], *, asynchronous: bool = True) -> None:
        assert not asynchronous
        at = self._scheduler.now
        stored = {
            Partition(each.topic, each.partition): Stored(each.offset, each.metadata or "", at=at) for each in offsets
        }
        code = self._ask_until("OffsetCommit", lambda: self._cluster.commit(self._group, stored), 60.0)
        if code != kafka.OK:
            raise _error(code)

    def consumer_group_metadata(self) -> str:
        self._scheduler.refuse_if_dead()
        return self._group

    def close(self) -> None:
        self._closed = True


class FakeAdmin(Client):
    """confluent_kafka.admin.AdminClient."""

    def _promise(self, api: str, answer: Callable[[], Any]) -> SimFuture[Any]:
        """Return a future of an answer; an error code becomes an error."""
        self._scheduler.refuse_if_dead()
        future: SimFuture[Any] = SimFuture()

        def answered(found: Any) -> None:
            if found is NO_ANSWER:
                future.set_exception(_error(TRANSPORT, "the connection broke"))
            elif isinstance(found, int):
                future.set_exception(_error(found))
            else:
                future.set_result(found)

        self._world.network.post(self._process, self._cluster, api, answer, answered)
        return future

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, Any],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float = 60.0,  # confluent-kafka's
    ) -> dict[TopicPartition, SimFuture[Any]]:
        stable = isolation_level == IsolationLevel.READ_COMMITTED

        def find(partition: Partition, spec: Any) -> Any:
            log = self._cluster.log(partition)
            if not log.has_leader:
                return kafka.NOT_LEADER
            end = log.stable if stable else log.end
            match type(spec).__name__:
                case "EarliestSpec":
                    return SimpleNamespace(offset=log.start)
                case "LatestSpec":
                    return SimpleNamespace(offset=end)
            later = (offset for offset in range(log.start, end) if log[offset].timestamp >= spec._value)
            return SimpleNamespace(offset=next(later, -1))

        return {
            at: self._promise("ListOffsets", partial(find, Partition(at.topic, at.partition), spec))
            for at, spec in wanted.items()
        }

    def describe_topics(self, topics: TopicCollection, **_: object) -> dict[str, SimFuture[Any]]:
        def describe(name: str) -> Any:
            topic = self._cluster.topics.get(name)
            return kafka.UNKNOWN_TOPIC if topic is None else _described(topic)

        return {name: self._promise("DescribeTopics", partial(describe, name)) for name in topics.topic_names}

    def create_topics(self, topics: Sequence[Any], **_: object) -> dict[str, SimFuture[Any]]:
        def create(name: str, partitions: int) -> Any:
            return (
                KafkaError.TOPIC_ALREADY_EXISTS
                if name in self._cluster.topics
                else self._cluster.create(name, partitions)
            )

        return {
            each.topic: self._promise("CreateTopics", partial(create, each.topic, each.num_partitions))
            for each in topics
        }

    def create_partitions(self, topics: Sequence[Any], **_: object) -> dict[str, SimFuture[Any]]:
        def grow(name: str, partitions: int) -> Any:
            self._cluster.grow(name, partitions)
            return self._cluster.topics[name]

        return {
            each.topic: self._promise("CreatePartitions", partial(grow, each.topic, each.new_total_count))
            for each in topics
        }

    def describe_configs(self, resources: Sequence[Any], **_: object) -> dict[Any, SimFuture[Any]]:
        def found(name: str) -> dict[str, Any]:
            topic = self._cluster.topics.get(name)
            settings = {
                "max.message.bytes": "1000000",
                "offsets.retention.minutes": f"{self._cluster.keeps_offsets_minutes}",
                "message.timestamp.type": "LogAppendTime" if topic and topic.append_time else "CreateTime",
            }
            return {name: SimpleNamespace(value=value) for name, value in settings.items()}

        return {each: self._promise("DescribeConfigs", partial(found, each.name)) for each in resources}

    def describe_cluster(self, **_: object) -> SimFuture[Any]:
        return self._promise("DescribeCluster", lambda: SimpleNamespace(nodes=[SimpleNamespace(id=0)]))

    def describe_consumer_groups(self, groups: Sequence[str], **_: object) -> dict[str, SimFuture[Any]]:
        empty = SimpleNamespace(members=[])
        return {each: self._promise("DescribeGroups", lambda: empty) for each in groups}


def _described(topic: kafka.TopicState) -> Any:
    node = SimpleNamespace(id=0)
    partitions = [
        SimpleNamespace(id=log.partition.number, leader=node if log.has_leader else None, replicas=[node], isr=[node])
        for log in topic.logs
    ]
    return SimpleNamespace(topic_id=topic.id, partitions=partitions)
