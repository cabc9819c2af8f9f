"""One schedule: a cluster, services, faults at their times, a time to heal, and the verdict."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from app import start
from app.config import Config, load
from app.driver.clients import Clients
from app.driver.service import Service
from app.driver.stop import Stop
from app.driver.tracker import StatusTracker
from app.errors import NotUsable, PartitionError, Unreachable, WinnowError
from app.executor.clients import ClientFactory
from app.kafka.backend import PLAIN
from app.kafka.clients import TaskClients
from app.model import Assignment, Guarantee, Partition
from app.runtime import Timings
from app.status.snapshot import About
from tests.simulation import librdkafka, scheduler
from tests.simulation.events import unblock
from tests.simulation.history import History
from tests.simulation.judge import Anomaly, Judge
from tests.simulation.kafka import LAST_EPOCH, Cluster, Log
from tests.simulation.librdkafka import FakeProducer, World
from tests.simulation.lines import CLEAN, DEAD, GROUP, RAW, TinyParser, line
from tests.simulation.network import Network
from tests.simulation.scheduler import Killed, Process, Scheduler
from tests.simulation.spark import SLOW_START_SECONDS, START_SECONDS, SimRounds
from tests.simulation.world import make_runtime

HERE, THERE = "here:9092", "there:9092"
LOOK_SECONDS, LONGEST_SECONDS = 0.25, 700.0
STOP_SECONDS = PERSON_SECONDS = 60.0
PENDING_SECONDS = 90.0
"""How long an offset that hangs may be pending before it counts as left to a person."""
MARKER_SECONDS = 0.004
HURRIED_SECONDS = 2.0
MISSED_SECONDS = 1.0
"""How long before a commit, and afterwards, a service must have looked to notice it."""


def honest(assignment: Assignment) -> ClientFactory:
    """Return the product's own clients."""
    make: Any = FakeProducer  # it is no subclass of what it stands for
    return TaskClients(assignment.config, PLAIN, make, assignment.ranges, in_use=assignment.takes_over)


@dataclass
class Running:
    """A service in a schedule: its processes, and how it ended."""

    name: str
    process: Process
    stop: Stop
    generation: int
    stands_by: bool
    until_end: bool
    since: float
    """When it started."""
    rounds: SimRounds | None = None
    tracker: StatusTracker | None = None
    code: int | None = None
    error: BaseException | None = None

    @property
    def over(self) -> bool:
        return self.process.dead

    @property
    def goes_on(self) -> bool:
        """Whether its tasks run, and nothing keeps it from working."""
        disturbed = self.stop.requested or self.process.frozen or self.process.cut_off
        return bool(self.rounds and self.rounds.alive) and not (self.over or disturbed)


@dataclass
class PauseInForce:
    """Since when the service is paused for sure: a person has paused it, and nobody is about to resume it."""

    since: float | None = None
    _ending: int = 0

    def begins(self, now: float) -> None:
        if self.since is None and not self._ending:
            self.since = now

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Let a person resume the service in this block."""
        self.since, self._ending = None, self._ending + 1
        try:
            yield
        finally:
            self._ending -= 1


@dataclass
class Result:
    """What came of a schedule."""

    seed: int
    anomalies: Sequence[Anomaly]
    steps: int
    seconds: float
    history: History
    answers: Any = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    gaps: int = 0
    """How many transactions met a known gap."""
    lost_in_gaps: int = 0
    doubled_in_gaps: int = 0
    """How many records are lost and doubled by them."""
    problems: Sequence[str] = ()
    """What the services that still ran told at the end."""


ONCE, AGAIN = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE
GUARANTEES = (ONCE,), (AGAIN,), (ONCE, AGAIN), (AGAIN, ONCE)


@dataclass(frozen=True)
class Setting:
    """
    What is fixed before a schedule begins.

    Args:
        slots: how many tasks run at once.
        round_interval: in seconds, as configured.
        out_of_range: as configured.
        two_clusters: whether source and sink have a cluster each.
        first_epoch: the epoch of new producer ids; close to the last one, they run out.
        offsets_minutes: how long the brokers keep offsets.
        hurried: whether coordinators abort open transactions after two seconds.
        slow: whether workers take a minute to start.
        guarantees: that of each generation, in turn.
        starting: where partitions start for which the group has no offset.
        append_time: whether the brokers date the lines and the dead letters.
    """

    slots: int = 2
    round_interval: int = 10
    out_of_range: str = "error"
    two_clusters: bool = False
    first_epoch: int = 0
    hurried: bool = False
    offsets_minutes: int = 10_080
    slow: bool = False
    guarantees: tuple[Guarantee, ...] = (Guarantee.EXACTLY_ONCE,)
    starting: str = "earliest"
    append_time: bool = False

    @property
    def repeats(self) -> bool:
        """Whether some service works at least once."""
        return Guarantee.AT_LEAST_ONCE in self.guarantees

    @property
    def hangs_for_good(self) -> bool:
        """Whether nothing of ours may end a transaction that hangs: its producer id has run out, or none follows."""
        return bool(self.first_epoch) or len(self.guarantees) > 1

    @classmethod
    def of(cls, seed: int) -> Setting:
        rng = random.Random(f"setting {seed}")
        drawn = cls(
            slots=rng.choice((1, 1, 2)),
            round_interval=rng.choice((2, 5, 10)),
            out_of_range=rng.choice(("error", "earliest", "nearest")),
            two_clusters=rng.random() < 0.15,
            first_epoch=LAST_EPOCH - 3 if rng.random() < 0.1 else 0,
            hurried=rng.random() < 0.1,
            slow=rng.random() < 0.02,
            guarantees=rng.choices(GUARANTEES, (85, 5, 5, 5))[0],
            starting="latest" if rng.random() < 0.15 else "earliest",
            append_time=rng.random() < 0.1,
        )
        # Latest with two guarantees: docs/guarantees.md does not promise it.
        return replace(drawn, starting="earliest") if len(drawn.guarantees) > 1 else drawn


@cache
def _config(generation: int, setting: Setting) -> Config:
    changes = [f"sink.kafka.bootstrap.servers={THERE}"] if setting.two_clusters else []
    return load(
        None,
        [
            f"group.id={GROUP}",
            f"source.topics={RAW}",
            f"sink.topic={CLEAN}",
            f"dead.letters.topic={DEAD}",
            f"kafka.bootstrap.servers={HERE}",
            "http.enabled=false",
            f"generation={generation}",
            f"delivery.guarantee={setting.guarantees[generation % len(setting.guarantees)]}",
            f"out.of.range={setting.out_of_range}",
            f"starting.offsets={setting.starting}",
            f"round.interval={setting.round_interval}",
            "parser.engine=plain",  # only a replay or an audit makes this parser, and never calls it
            *changes,
        ],
        {},
    )


class Simulation:
    """Everything of one schedule, for the events that change it."""

    def __init__(self, seed: int, setting: Setting = Setting(), *, kept: bool = False) -> None:  # it is frozen
        self.seed, self.setting = seed, setting
        self.scheduler = Scheduler(seed)
        self.rng = self.scheduler.rng
        self.history = History(lambda: self.scheduler.now, kept=kept)
        self.network = Network(self.scheduler, self.history)
        self.marker_seconds = MARKER_SECONDS
        self.source = self._cluster()
        self.sink = self._cluster() if setting.two_clusters else self.source
        self.world = World(self.scheduler, self.network, self.history, {HERE: self.source, THERE: self.sink})
        self.services: list[Running] = []
        self.goes_on = True
        """Whether a killed service is started again."""
        self.heals_at = 0.0
        self.outage_until = -math.inf
        """When the long outage ends."""
        self.pause = PauseInForce()
        self.source.create(RAW, 2)
        self.sink.create(CLEAN, 2, append_time=setting.append_time)
        self.sink.create(DEAD, 1, append_time=setting.append_time)
        self.config = _config(0, setting)
        self.judge = Judge(
            self.source,
            self.sink,
            group=GROUP,
            topics=(RAW, CLEAN, DEAD),
            stands_for=self.stands_for,
            goes_on=lambda host: any(each.goes_on for each in self.services if each.name == host),
            history=self.history,
            repeats=setting.repeats,
            from_the_end=setting.starting == "latest",
        )
        self.written: dict[int, int] = {}
        self.ends: dict[Partition, int] = {}
        """The end of each log that was cut, just afterwards."""
        self._operators: list[Process] = []

    def _cluster(self) -> Cluster:
        cluster = Cluster(self.scheduler, lambda: self.rng.expovariate(1 / self.marker_seconds))
        cluster.first_epoch = self.setting.first_epoch
        cluster.keeps_offsets_minutes = self.setting.offsets_minutes
        if self.setting.offsets_minutes < 60:
            cluster.expire_offsets()
        if self.setting.hurried:
            cluster.longest_seconds = HURRIED_SECONDS
        return cluster

    def stands_for(self, partition: Partition) -> Partition:
        """Return the partition under which the offset of a source partition is stored."""
        placeholder = self.config.placeholder
        return partition._replace(topic=placeholder.format(topic=partition.topic)) if placeholder else partition

    # What events use

    def write(self, partition: int, count: int) -> None:
        """Let the agent write lines, one in four of them bad."""
        first = self.written.get(partition, 0)
        self.written[partition] = first + count
        lines = [line(partition, first + number, good=self.rng.random() < 0.75) for number in range(count)]
        self.source.write(Partition(RAW, partition), *lines)

    @property
    def logs(self) -> list[Log]:
        """The partitions of the source."""
        return self.source.topics[RAW].logs

    @property
    def outputs(self) -> list[Log]:
        """The partitions of the sink and of the dead letters."""
        return [*self.sink.topics[CLEAN].logs, *self.sink.topics[DEAD].logs]

    def stored(self, log: Log) -> int | None:
        """Return the group's offset in a source partition."""
        found = self.sink.groups[GROUP].stored.get(self.stands_for(log.partition))
        return None if found is None else found.offset

    def operator(self, name: str, work: Callable[[Clients], object]) -> Process:
        """Let a person do something in a process of its own, again until it succeeds or is refused."""
        process = Process(name)
        self._operators.append(process)

        def main() -> None:
            clients = start.clients(self.config, make_runtime(self.scheduler, name))
            while True:
                try:
                    work(clients)
                except (PartitionError, Unreachable) as error:
                    self.history.note(name, "must try again", str(error))
                    self.scheduler.sleep(1.0)
                except NotUsable as error:
                    self.history.note(name, "is refused", str(error))
                    return
                else:
                    self.history.note(name, "has done it")
                    return

        self.scheduler.spawn(process, "main", main)
        return process

    def start_service(self, generation: int = 0, *, stand_by: bool = False, until_end: bool = False) -> Running:
        """Start a service in a process of its own."""
        name = f"s{len(self.services) + 1}"
        running = Running(name, Process(name), Stop(), generation, stand_by, until_end, self.scheduler.now)
        self.services.append(running)
        how = f"{', standing by' if stand_by else ''}{', until the end' if until_end else ''}"
        self.history.note(name, "starts", f"generation {generation}{how}")

        def main() -> None:
            try:
                running.code = self._serve(running)
                self._leaves(running)
            except Killed:
                raise
            except WinnowError as error:
                running.code, running.error = 2, error
            except Exception as error:  # noqa: BLE001  # the verdict names it
                running.error = error
                self.judge.found("crashed", f"{name}: {type(error).__name__}: {error}")
                if self.history.kept:
                    import traceback

                    traceback.print_exc()
            self.history.note(name, "ends", f"code {running.code} {running.error or ''}")
            self.scheduler.kill(running.process)

        self.scheduler.spawn(running.process, "main", main)
        return running

    def _serve(self, running: Running) -> int:
        config = _config(running.generation, self.setting)
        runtime = make_runtime(self.scheduler, running.name, look=1.0)
        clients = replace(start.clients(config, runtime), clusters=None)

        def rounds() -> SimRounds:
            self._goes_to_work(running)
            running.rounds = SimRounds(
                self.scheduler,
                running.process,
                honest,
                runtime,
                parser=TinyParser(),
                slots=self.setting.slots,
                submits=lambda: self._starts_tasks(running),
                start_seconds=SLOW_START_SECONDS if self.setting.slow else START_SECONDS,
            )
            return running.rounds

        running.tracker = tracker = StatusTracker(GROUP, [], runtime, about=About(sink=CLEAN))
        service = Service(config, clients, rounds, stop=running.stop, tracker=tracker, runtime=runtime)
        return service.run(until_end=running.until_end, stand_by=running.stands_by)

    def _goes_to_work(self, running: Running) -> None:
        """Judge a service that has looked for others, and has fenced whatever was left of them."""
        if not (running.stands_by or running.until_end):
            return
        for each in self.services:
            equal = each is not running and each.generation == running.generation
            if equal and each.goes_on and self._has_seen(running, each):
                self.judge.found("displaced", f"{running.name} goes to work beside {each.name}")

    def _leaves(self, running: Running) -> None:
        """Judge a service that says it was taken over: a later one lives, has taken everything, or had time to."""
        later = running.generation + 1
        says_so = running.stop.cause.startswith("taken over by") and all(each.generation < later for each in self.alive)
        if says_so and self.judge.never_took_all(later, Timings().gone - self.setting.round_interval):
            self.judge.found("deserted", f"{running.name} ends, and nobody has all partitions")

    def _has_seen(self, running: Running, other: Running) -> bool:
        """
        Return whether a service that looked for others has seen another one's commits or at least its name.

        After an outage it must wait for any name. Whoever is silent for `gone` counts as gone; what is overwritten between
        two looks is never seen.
        """
        looked_from = self.network.first_answered.get((running.process, "OffsetFetch"), running.since)
        looked_until = self.network.first_asked.get((running.process, "InitProducerId"), self.scheduler.now)
        if running.since < self.outage_until and looked_until < self.outage_until + Timings().gone:
            return self.judge.named(other.name, looked_until - MISSED_SECONDS)
        if looked_until - looked_from < Timings().sign_of_life:
            return self.judge.named(other.name, looked_from)
        since = max(looked_from, looked_until - Timings().gone + self.setting.round_interval)
        return self.judge.committed(other.name, since + MISSED_SECONDS, looked_until - MISSED_SECONDS)

    def _starts_tasks(self, running: Running) -> None:
        if self.pause.since is not None and self.pause.since < running.since:
            self.judge.found("went on", f"{running.name} starts tasks, though paused before it started")

    def usual_markers(self) -> None:
        self.marker_seconds = MARKER_SECONDS

    @property
    def newest_generation(self) -> int:
        return max((each.generation for each in self.services), default=0)

    @property
    def alive(self) -> list[Running]:
        return [each for each in self.services if not each.over]

    @property
    def workers(self) -> list[Process]:
        return [worker for each in self.services if each.rounds for worker in each.rounds.alive]

    @property
    def processes(self) -> list[Process]:
        rounds = [each.rounds.workers for each in self.services if each.rounds]
        workers = [worker for some in rounds for worker in some]
        return [each.process for each in self.services] + workers + self._operators

    # The course of a schedule

    def run(self, events: Sequence[Any], heal_at: float) -> Result:
        """Run the schedule to its end."""
        scheduler.use(self.scheduler)
        librdkafka.use(self.world)
        try:
            self._run(events, heal_at)
            problems = [str(each.tracker.snapshot.problems) for each in self.alive if each.tracker is not None]
            if self.scheduler.failure is not None:
                raise self.scheduler.failure
            return Result(
                self.seed,
                list(self.judge.anomalies),
                self.scheduler.steps,
                self.scheduler.now,
                self.history,
                self.network.answers,
                [str(each.error) for each in self.services if each.error],
                len(self.judge.gaps),
                len(self.judge.lost_in_gaps),
                len(self.judge.doubled_in_gaps),
                problems,
            )
        finally:
            self.scheduler.finish(self.processes)
            scheduler.use(None)
            librdkafka.use(None)

    def _run(self, events: Sequence[Any], heal_at: float) -> None:
        for partition in range(2):
            self.write(partition, self.rng.randint(3, 10))
        self.heals_at = heal_at
        self.start_service()
        for event in events:
            self.scheduler.sleep(max(0.0, event.at - self.scheduler.now))
            if self._gave_up():
                return
            event.happen(self)
        self.scheduler.sleep(max(0.0, self.heals_at - self.scheduler.now))
        self._heal()
        if self.judge.hangs:  # a committed transaction ends with the next one
            self.write_to_all()
        if self._drains() and self._settles():
            self._stop()
            self.judge.conclude()

    def write_to_all(self) -> None:
        """Write a good and a bad line to each partition."""
        for log in self.logs:
            for good in (True, False):
                number = self.written.get(log.partition.number, 0)
                self.written[log.partition.number] = number + 1
                self.source.write(log.partition, line(log.partition.number, number, good=good))

    def _settles(self) -> bool:
        """Return whether a single service is left at work, and new lines come once from then on."""
        if self.setting.slow:
            return True  # a round whose workers start slowly may be killed at any time
        self.goes_on = False
        looks_at, until = self.scheduler.now, self.scheduler.now + LONGEST_SECONDS
        while (len(self._at_work()) > 1 or self._orphans() or self._may_follow()) and not self._gave_up():
            looks_at = self._person_looks(looks_at)  # while all partitions wait for a person, nobody commits its name
            if self.scheduler.now > until:
                self.judge.found("two services", f"{' and '.join(each.name for each in self._at_work())} both work on")
                return False
            self.scheduler.sleep(LOOK_SECONDS)
        return self._comes_once() if self.setting.repeats else self._drains()

    def _person_looks(self, at: float) -> float:
        """Let a person do what the service asks for, if it is time; return when the person looks next."""
        if self.scheduler.now < at:
            return at
        unblock(self)
        return at + PERSON_SECONDS

    def _comes_once(self) -> bool:
        """Write twice. A lane that another has replaced learns that at its next save: the first lines may be doubled."""
        self.write_to_all()
        if not self._drains():
            return False
        self.judge.settle(self.written)
        self.write_to_all()
        return self._drains()

    def _orphans(self) -> list[Process]:
        """Return the workers that have outlived their driver."""
        return [worker for each in self.services if each.over and each.rounds for worker in each.rounds.alive]

    def _may_follow(self) -> bool:
        """At least once: return whether services stand by, and none has worked so long that they must have seen it."""
        since = self.scheduler.now - self.setting.round_interval - Timings().sign_of_life
        seen = any(each.rounds and each.rounds.since < since for each in self.alive)
        return self.setting.repeats and not seen and not all(each.rounds for each in self.alive)

    def _at_work(self) -> list[Running]:
        """Return the services that work or will: not those that stand by, asked to or beside a later generation."""
        newest = max((each.generation for each in self.alive), default=0)
        return [each for each in self.alive if each.rounds or (each.generation == newest and not each.stands_by)]

    def _gave_up(self) -> bool:
        return self.scheduler.gave_up

    def _heal(self) -> None:
        self.history.note("nemesis", "heals")
        self.network.armed.clear()
        self.usual_markers()
        for cluster in (self.source, self.sink):
            cluster.down = False
            cluster.silent_coordinators.clear()
            cluster.groups[GROUP].has_coordinator = True
            for topic in cluster.topics.values():
                for log in topic.logs:
                    log.gets_leader()
        for process in self.processes:
            process.cut_off = False
            if process.frozen:
                self.scheduler.thaw(process)

    def _drains(self) -> bool:
        """Wait until everything is done, while a person looks now and again; return whether it is."""
        looks_at, until = self.scheduler.now, self.scheduler.now + LONGEST_SECONDS
        while not (self.judge.drained() or self.judge.anomalies or self._gave_up()):
            if not self.alive:
                self.start_service(self.newest_generation)
            looks_at = self._person_looks(looks_at)
            if self.scheduler.now > until - LONGEST_SECONDS + PENDING_SECONDS and self.judge.waits_for_a_person():
                return False
            if self.scheduler.now > until:
                self.judge.conclude()
                self.judge.found("stuck", self.judge.what_is_left())
                return False
            self.scheduler.sleep(LOOK_SECONDS)
        if self._gave_up() and self.scheduler.failure is None:
            self.judge.found("livelock", self.judge.what_is_left())
        return not self._gave_up() and not self.judge.anomalies

    def _stop(self) -> None:
        self.goes_on = False
        for each in self.alive:
            each.stop.request("the schedule ends")
        until = self.scheduler.now + STOP_SECONDS
        while self.alive and not self._gave_up():
            if self.scheduler.now > until:
                self.judge.found("stuck", f"{self.alive[0].name} does not stop")
                return
            self.scheduler.sleep(LOOK_SECONDS)
        failed = [each for each in self.services if each.code not in (None, 0) and each.error is None]
        if wrong := [each for each in failed if not (each.until_end and each.code == 1)]:
            self.judge.found("crashed", f"{wrong[0].name} ended with {wrong[0].code}")
