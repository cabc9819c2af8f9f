"""
What happens in a schedule besides the service's own work: kills, outages, lost and late requests, second services, people.

An event is data, so that a failing schedule can be told and shrunk. `happen` finds its target among what exists then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from app import start
from app.driver.clients import Clients
from app.executor.fates import Fates
from app.executor.parse import parse
from app.headers import TRANSACTION
from app.model import CommittedOffset, Partition, Pause, transactional_id, transactional_ids
from app.offsets.contract import PastOffsets
from app.offsets.metadata import OffsetMetadata
from app.offsets.migrate import Move, moves, moves_back
from app.operate.audit import Readers, Scope
from app.operate.dead_letter_replay import GROUP as REPLAY_GROUP
from app.operate.dead_letter_replay import Pace, Plan, Session, replaying
from app.operate.dead_letters import Selection
from app.runtime import Timings
from tests.simulation.kafka import Entry, Fate, Log, Stored, milliseconds
from tests.simulation.lines import CLEAN, DEAD, GROUP, RAW, LenientParser, TinyParser, line
from tests.simulation.network import Fault, Kind
from tests.simulation.scheduler import Process

PATIENCE = 60
"""How many times a person looks, every half second, whether all tasks have ended."""
HEAL_SECONDS = 8.0
"""When everything is repaired."""
LOOK_SECONDS, AGAIN_SECONDS = 0.01, 0.1
"""How soon something happens after what it waits for; the second if it may wait for long."""
REPLAYS = "replays"
"""How the name of each process begins that replays dead letters."""
SILENCE_SECONDS = Timings().gone + 5.0
"""Longer than a living service may be silent."""


@dataclass(frozen=True, slots=True)
class Event:
    """
    One event.

    Args:
        at: its time in the schedule.
        kind: what happens.
        which: chooses the target among those that exist.
        seconds: how long it lasts, or how late something comes.
        detail: what else the kind needs.
    """

    at: float
    kind: What
    which: int = 0
    seconds: float = 0.0
    detail: str = ""

    def happen(self, sim: Any) -> None:
        said = f"{self.detail} {self.seconds:.1f} s".strip() if self.seconds else self.detail
        sim.history.note("nemesis", self.kind, said)
        _HAPPENS[self.kind](sim, self)

    def __str__(self) -> str:
        return f"{self.at:7.3f} s  {self.kind}, target {self.which}, {self.seconds:.1f} s {self.detail}".rstrip()


class What(StrEnum):
    """The kinds of events."""

    WRITE = "lines are written"
    WRITE_ABORTED = "a source transaction is aborted"
    WRITE_FORGED = "a bad line bears the headers of ours"
    KILL_TASK = "a task is killed"
    KILL_DRIVER = "the driver is killed"
    FREEZE_TASK = "a task is frozen"
    FREEZE_DRIVER = "the driver is frozen"
    CUT_OFF_TASK = "a task is cut off"
    CUT_OFF_DRIVER = "the driver is cut off"
    FAULT = "a request meets a fault"
    BROKERS_DOWN = "no broker answers"
    LONG_OUTAGE = "no broker answers for minutes"
    COORDINATOR_MOVES = "a transaction coordinator moves"
    GROUP_MOVES = "the group's coordinator moves"
    GROUP_LEADERLESS = "the group's offsets have no leader"
    SLOW_MARKERS = "markers are slow"
    SINK_LEADERLESS = "a partition of the output has no leader"
    SOURCE_LEADERLESS = "a source partition has no leader"
    SERVICE_STARTS = "a second service starts"
    NEW_GENERATION = "a later generation starts"
    GENERATION_DIES = "a later generation starts and dies for good"
    STANDS_BY = "a service stands by"
    UNTIL_END = "a service starts that ends by itself"
    SERVICE_STOPS = "a service is stopped"
    PAUSE = "the service is paused"
    RESET = "offsets are reset"
    RESTORE = "earlier offsets are restored"
    PLACEHOLDERS_LOST = "the sink's cluster forgets the group's offsets"
    MARK_LOST = "the offsets of the dead-letter topic are lost"
    MOVED_BACK = "another program moves an offset back"
    REPLAY = "dead letters are replayed"
    AUDIT = "the output is audited"
    ADD_SOURCE = "the source gets a partition"
    ADD_SINK = "the sink gets a partition"
    RETENTION = "retention deletes records"
    TRUNCATION = "the source's log is cut"


FAULTY_APIS = (
    "EndTxn",
    "EndTxn",
    "EndTxn",
    "TxnOffsetCommit",
    "TxnOffsetCommit",
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "InitProducerId",
    "InitProducerId",
    "Produce",
    "OffsetFetch",
    "ListOffsets",
)
USUAL: Sequence[tuple[What, int]] = (
    (What.FAULT, 30),
    (What.KILL_TASK, 10),
    (What.KILL_DRIVER, 5),
    (What.FREEZE_TASK, 10),
    (What.FREEZE_DRIVER, 4),
    (What.CUT_OFF_TASK, 4),
    (What.CUT_OFF_DRIVER, 2),
    (What.BROKERS_DOWN, 3),
    (What.COORDINATOR_MOVES, 5),
    (What.GROUP_MOVES, 4),
    (What.SLOW_MARKERS, 5),
    (What.SOURCE_LEADERLESS, 3),
    (What.SERVICE_STARTS, 4),
    (What.NEW_GENERATION, 5),
    (What.STANDS_BY, 2),
    (What.UNTIL_END, 2),
    (What.LONG_OUTAGE, 1),
    (What.RESTORE, 2),
    (What.PLACEHOLDERS_LOST, 1),
    (What.MARK_LOST, 1),
    (What.WRITE_FORGED, 1),
    (What.SERVICE_STOPS, 2),
    (What.SINK_LEADERLESS, 4),
    (What.GROUP_LEADERLESS, 2),
    (What.PAUSE, 3),
    (What.RESET, 3),
    (What.MOVED_BACK, 2),
    (What.REPLAY, 4),
    (What.AUDIT, 4),
    (What.RETENTION, 3),
    (What.TRUNCATION, 3),
    (What.ADD_SOURCE, 2),
    (What.ADD_SINK, 2),
    (What.WRITE_ABORTED, 5),
    (What.GENERATION_DIES, 2),
)


FEW_KINDS = 0.25
"""The share of schedules whose events are of two to four kinds only: several of one kind meet there (swarm testing)."""


def draw(seed: int) -> list[Event]:
    """Return the events of a seed."""
    rng = random.Random(f"events {seed}")
    events = [
        Event(round(rng.uniform(0, HEAL_SECONDS - 2), 3), What.WRITE, rng.randrange(2), detail=str(rng.randint(1, 3)))
        for _ in range(rng.choice((4, 6, 8, 10, 20)))
    ]
    few = rng.random() < FEW_KINDS
    kinds, weights = zip(*(rng.sample(USUAL, rng.randint(2, 4)) if few else USUAL), strict=True)
    centre = rng.uniform(0.3, HEAL_SECONDS - 3)
    for _ in range(rng.randint(4, 7) if few else rng.randint(1, 5)):
        # Faults that overlap find more than faults far apart.
        at = rng.uniform(0.1, HEAL_SECONDS - 2) if rng.random() < 0.4 else max(0.05, rng.gauss(centre, 0.8))
        kind = rng.choices(kinds, weights)[0]
        if kind is What.FAULT and rng.random() < 0.5:  # while a transaction is open
            at = rng.choice(events).at + rng.uniform(0.0, 0.7)
        events.append(_draw(rng, min(at, HEAL_SECONDS - 1), kind))
    return sorted(events, key=lambda each: each.at)


def _draw(rng: random.Random, at: float, kind: What) -> Event:
    seconds, detail = rng.choice((rng.uniform(0.05, 1.0), rng.uniform(0.3, 4.0), rng.uniform(2.0, 12.0))), ""
    if kind is What.FAULT:
        detail = f"{rng.choice(FAULTY_APIS)}/{rng.choice([*Kind, Kind.REQUEST_LATE])}"
    return Event(round(at, 3), kind, rng.randrange(6), round(seconds, 3), detail)


# How each kind happens


def _pick(some: Sequence[Any], event: Event) -> Any:
    return some[event.which % len(some)] if some else None


def _write(sim: Any, event: Event) -> None:
    sim.write(event.which % len(sim.logs), int(event.detail))


def _write_forged(sim: Any, event: Event) -> None:
    """Write a bad line with headers as the lines of a service have them, which come into its dead letter."""
    log: Log = _pick(sim.logs, event)
    number = sim.written.get(log.partition.number, 0)
    sim.written[log.partition.number] = number + 1
    forged = TRANSACTION, f"{transactional_id(sim.config.group_id, log.partition)}@x".encode()
    bad = line(log.partition.number, number, good=False)
    log.append(Entry(bad, headers=(forged,), timestamp=milliseconds(sim.scheduler.now)))


def _write_aborted(sim: Any, event: Event) -> None:
    log: Log = _pick(sim.logs, event)
    log.ongoing[event.which] = log.end
    for _ in range(2):
        log.append(Entry(b"9:9", producer=event.which, fate=Fate.OPEN))

    def abort() -> None:
        if log.mark(event.which, 0, Fate.ABORTED) is None:
            sim.scheduler.after(0.5, abort)

    sim.scheduler.after(event.seconds, abort)


def _kill_task(sim: Any, event: Event) -> None:
    if (worker := _pick(sim.workers, event)) is not None:
        _kill(sim, worker)


def _kill_driver(sim: Any, event: Event) -> None:
    if (service := _pick(sim.alive, event)) is not None:
        _kill(sim, service.process)
        sim.scheduler.after(event.seconds, lambda: sim.start_service(service.generation) if sim.goes_on else None)


def _kill(sim: Any, process: Process) -> None:
    sim.history.note(process.name, "is killed")
    sim.scheduler.kill(process)


def _for_a_time(
    process: Process | None,
    sim: Any,
    event: Event,
    begin: Callable[[Process], object],
    end: Callable[[Process], object],
) -> None:
    if process is not None:
        sim.history.note(process.name, event.kind)
        begin(process)
        sim.scheduler.after(event.seconds, lambda: process.dead or end(process))


def _freeze_task(sim: Any, event: Event) -> None:
    _for_a_time(_pick(sim.workers, event), sim, event, sim.scheduler.freeze, sim.scheduler.thaw)


def _freeze_driver(sim: Any, event: Event) -> None:
    _for_a_time(
        _pick([each.process for each in sim.alive], event), sim, event, sim.scheduler.freeze, sim.scheduler.thaw
    )


def _cut(process: Process) -> None:
    process.cut_off = True


def _join(process: Process) -> None:
    process.cut_off = False


def _cut_off_task(sim: Any, event: Event) -> None:
    _for_a_time(_pick(sim.workers, event), sim, event, _cut, _join)


def _cut_off_driver(sim: Any, event: Event) -> None:
    _for_a_time(_pick([each.process for each in sim.alive], event), sim, event, _cut, _join)


def _fault(sim: Any, event: Event) -> None:
    api, _, kind = event.detail.partition("/")
    sim.network.armed.append(Fault(api, Kind(kind), event.seconds))


def _brokers_down(sim: Any, event: Event) -> None:
    cluster = _pick((sim.sink, sim.source), event)
    cluster.down = True
    sim.scheduler.after(min(event.seconds, 5.0), lambda: setattr(cluster, "down", False))


def _long_outage(sim: Any, event: Event) -> None:
    """Take all brokers away for longer than another service may be silent."""
    seconds = SILENCE_SECONDS + 5 * event.seconds
    sim.source.down = sim.sink.down = True
    sim.outage_until = max(sim.outage_until, event.at + seconds)
    sim.heals_at = sim.outage_until + HEAL_SECONDS
    for cluster in (sim.source, sim.sink):
        sim.scheduler.after(seconds, partial(setattr, cluster, "down", False))


def _coordinator_moves(sim: Any, event: Event) -> None:
    if (name := _pick(sorted(sim.sink.transactions), event)) is not None:
        sim.sink.silent_coordinators.add(name)
        sim.scheduler.after(min(event.seconds, 5.0), lambda: sim.sink.silent_coordinators.discard(name))


def _group_moves(sim: Any, event: Event) -> None:
    """Let the group's coordinator move; markers wait for it."""
    group, skips = sim.sink.groups[GROUP], sim.sink.skips_markers
    group.has_coordinator, sim.sink.skips_markers = False, False

    def back() -> None:
        group.has_coordinator, sim.sink.skips_markers = True, skips

    sim.scheduler.after(min(event.seconds, 5.0), back)


def _slow_markers(sim: Any, event: Event) -> None:
    sim.marker_seconds = event.seconds / 4
    sim.scheduler.after(event.seconds, sim.usual_markers)


def _leaderless(sim: Any, event: Event, log: Log) -> None:
    if log in sim.outputs and sim.setting.hangs_for_good:
        return
    log.has_leader = False
    sim.scheduler.after(event.seconds, log.gets_leader)


def _source_leaderless(sim: Any, event: Event) -> None:
    _leaderless(sim, event, _pick(sim.logs, event))


def _sink_leaderless(sim: Any, event: Event) -> None:
    _leaderless(sim, event, _pick(sim.outputs, event))


def _start_service(sim: Any, _: Event) -> None:
    sim.start_service(sim.newest_generation)


def _new_generation(sim: Any, _: Event) -> None:
    sim.start_service(sim.newest_generation + 1)


def _generation_dies(sim: Any, event: Event) -> None:
    """
    Start a later generation and kill it for good; lines come afterwards.

    Either all of it dies once it has taken a partition, or its driver after a time, perhaps before it has taken any.
    """
    service, until = sim.start_service(sim.newest_generation + 1), sim.scheduler.now + event.seconds
    all_of_it = event.which % 2 == 0
    sim.heals_at = max(sim.heals_at, until + 1.0)

    def look() -> None:
        has_one = all_of_it and sim.judge.named(service.name, sim.scheduler.now)
        if not has_one and sim.scheduler.now < until:
            sim.scheduler.after(LOOK_SECONDS, look)
        elif not service.over:
            for process in (service.process, *(service.rounds.alive if has_one else ())):
                _kill(sim, process)
            sim.write_to_all()

    look()


def _stands_by(sim: Any, _: Event) -> None:
    sim.start_service(sim.newest_generation, stand_by=True)


def _until_end(sim: Any, _: Event) -> None:
    sim.start_service(sim.newest_generation, until_end=True)


def _service_stops(sim: Any, event: Event) -> None:
    if (service := _pick(sim.alive, event)) is not None:
        service.stop.request("SIGTERM")


def _replay(sim: Any, event: Event) -> None:
    """Replay dead letters with a parser that accepts them; kill the replay, perhaps too late, and start another."""
    process = sim.operator(REPLAYS, partial(_replay_dead_letters, sim))
    sim.scheduler.after(event.seconds / 10, lambda: sim.scheduler.kill(process))
    sim.scheduler.after(event.seconds / 5, lambda: sim.operator(f"{REPLAYS} again", partial(_replay_dead_letters, sim)))


def _replay_dead_letters(sim: Any, clients: Clients) -> None:
    """Do what `winnow dlq replay` does."""
    tasks = replaying(sim.config, clients, None)
    reader = start.records(tasks.output_kafka, tasks.group)
    with closing(start.dead_letter_replays(tasks)) as replays:
        cleanse = Fates(tasks, partial(parse, LenientParser()), clock=lambda: sim.scheduler.now)
        plan = Plan(Selection(), None, attempts=3)
        session = Session(tasks, plan, cleanse, clients=clients, kafka=replays, reader=reader)
        session.carry_out(Pace(None), lambda _: None)


def _audit(sim: Any, _: Event) -> None:
    sim.operator("audits", partial(_compare, sim))


def _compare(sim: Any, clients: Clients) -> None:
    """Do what `winnow audit` does, and let the judge compare."""
    sim.judge.look()
    there, seen, again = sim.judge.in_the_source(), set(sim.judge.seen), set(sim.judge.again)
    scope = Scope.of(sim.config, clients, 0, None, None)
    source, output = (start.records(each, sim.config.group_id) for each in (sim.config.kafka, sim.config.output_kafka))
    readers = Readers(source, output, clients.topics, clients.destinations)
    cleanse = Fates(scope.tasks, partial(parse, TinyParser()), clock=lambda: sim.scheduler.now)
    verdicts = scope.audit(cleanse, readers)
    complete = not scope.left_out and not any(sum(each.not_judged.values()) for each in verdicts)
    findings = [each for verdict in verdicts for each in verdict.findings]
    sim.judge.audited(findings, scope.judged if complete else {}, there=there, seen=seen, again=again)


def _group_leaderless(sim: Any, event: Event) -> None:
    """Let the partition of the group's offsets lose its leader; markers are skipped."""
    group = sim.sink.groups[GROUP]
    if sim.setting.hangs_for_good:
        return
    group.has_coordinator = False
    sim.scheduler.after(min(event.seconds, 5.0), lambda: setattr(group, "has_coordinator", True))


def _add_source(sim: Any, _: Event) -> None:
    if len(sim.logs) < 3:
        sim.source.grow(RAW, 3)
        sim.judge.added(sim.logs[2])
        sim.write(2, 3)


def _add_sink(sim: Any, _: Event) -> None:
    sim.sink.grow(CLEAN, 3)


def _retention(sim: Any, event: Event) -> None:
    """Let retention delete records that are done, and perhaps some that are not."""
    log: Log = _pick(sim.logs, event)
    before = (sim.stored(log) or 0) + event.which
    sim.judge.deleted(log, before)
    log.delete_before(before)


def _truncation(sim: Any, event: Event) -> None:
    """Let the log lose its last records in an unclean election."""
    log: Log = _pick(sim.logs, event)
    if sim.setting.out_of_range != "earliest" and not log.ongoing:
        sim.judge.cut(log)
        log.cut(max(log.start, log.end - 1 - event.which))
        sim.ends[log.partition] = min(log.end, sim.ends.get(log.partition, log.end))


def _pause(sim: Any, event: Event) -> None:
    def pause(clients: Clients) -> None:
        with _paused(sim, clients):
            sim.scheduler.sleep(event.seconds)

    sim.operator("pauses", pause)


@contextmanager
def _paused(sim: Any, clients: Clients) -> Iterator[None]:
    """Pause for the block, as a person does."""
    clients.pauses.set(Pause(int(sim.scheduler.now * 1000), "sim"))
    sim.pause.begins(sim.scheduler.now)
    try:
        yield
    finally:
        with sim.pause.ending():
            clients.pauses.clear()


def _mark_lost(sim: Any, event: Event) -> None:
    """
    Forget what groups have stored for the dead-letter topic, as if it were deleted and created again.

    Only a pause is stored there, so a person pauses the service first, unless one has.
    """

    def lose() -> None:
        for group in sim.sink.groups.values():
            group.stored = {each: stored for each, stored in group.stored.items() if each.topic != DEAD}

    def pause_and_lose(clients: Clients) -> None:
        with _paused(sim, clients):
            lose()
            sim.scheduler.sleep(event.seconds)

    if sim.pause.since is None:
        sim.operator("pauses", pause_and_lose)
    else:
        lose()


def _placeholders_lost(sim: Any, event: Event) -> None:
    """
    Forget the group's offsets on the sink's cluster, once each has a copy and no second service works against the first.

    Not in the first round of a partition: only its task knows then that it had an offset (docs/guarantees.md). As a
    round lasts longer than a schedule, the driver is killed if need be.
    """

    def look() -> None:
        if not _loses_placeholders(sim) and sim.scheduler.now < HEAL_SECONDS:
            sim.scheduler.after(AGAIN_SECONDS, look)

    if sim.setting.two_clusters and not _loses_placeholders(sim):
        _kill_driver(sim, event)
        look()


def _loses_placeholders(sim: Any) -> bool:
    """Forget them if that may be now; return whether it was."""
    group, copies = sim.sink.groups[GROUP], sim.source.groups[GROUP].stored
    lost = [each for log in sim.logs if (each := sim.stands_for(log.partition)) in group.stored]
    copied = all(log.partition in copies for log in sim.logs if sim.stored(log) is not None)
    working = [each.rounds for each in sim.services if each.rounds and (not each.over or each.rounds.alive)]
    planned = [each for rounds in working for each in rounds.planned]
    known = all(each.committed is not None for each in planned)
    if not (sim.setting.two_clusters and lost and copied and known and len(sim.alive) <= 1):
        return False
    sim.judge.lost_at = sim.scheduler.now
    for each in lost:
        del group.stored[each]
    return True


def _reset(sim: Any, event: Event) -> None:
    """Set an offset back by some records."""
    log: Log = _pick(sim.logs, event)

    def back() -> int | None:
        stored = sim.stored(log)
        return None if stored is None else max(log.start, stored - event.which)

    sim.operator("resets", lambda clients: _while_paused(sim, log, back, clients))


def _restore(sim: Any, event: Event) -> None:
    """Restore the offsets of some seconds ago."""
    moment = milliseconds(max(0.0, sim.scheduler.now - event.seconds))
    sim.operator("restores", lambda clients: _restore_all(sim, moment, clients))


def _restore_all(sim: Any, moment: int, clients: Clients) -> None:
    """Do what `winnow offsets history --restore` does, while the service is paused."""
    with _paused(sim, clients):
        if _no_task_runs(sim):
            topics = clients.topics.source_topics((RAW,), None, ())
            for move in moves_back(Past(sim), clients.offsets, topics, moment):
                _set(sim, move, clients)


class Past:
    """The history of the group's offsets."""

    def __init__(self, sim: Any) -> None:
        self._sim = sim

    def history(self, topic: str, most: int, until: int | None = None) -> Sequence[PastOffsets]:
        """Return the offsets at one moment, the only entry; none if there were none."""
        assert until is not None
        then: dict[Partition, Stored] = {}
        for partition, each in self._sim.judge.earlier.items():
            if known := [stored for stored in each if milliseconds(stored.at) <= until]:
                then[partition] = known[-1]
        offsets = {each.number: stored.offset for each, stored in then.items()}
        ids = {each.number: OffsetMetadata.parse(stored.metadata).topic_id for each, stored in then.items()}
        return [PastOffsets(until, offsets, ids)][:most] if then else []


def _moved_back(sim: Any, event: Event) -> None:
    """Set an offset back by a record, whatever the service does."""
    log: Log = _pick(sim.logs, event)
    if (stored := sim.stored(log)) is not None:
        back = max(log.start, stored - 1)
        sim.judge.set_to(log, back)
        sim.sink.commit(GROUP, {sim.stands_for(log.partition): Stored(back, "", at=sim.scheduler.now)})


def _while_paused(sim: Any, log: Log, target: Callable[[], int | None], clients: Clients) -> None:
    """Pause, wait until no task runs, set an offset, and resume: as `winnow offsets reset` does."""
    with _paused(sim, clients):
        if _no_task_runs(sim) and (offset := target()) is not None:
            before = clients.offsets.load([log.partition], stable=True).get(log.partition)
            metadata = OffsetMetadata.restarting(before, offset, sim.source.topics[RAW].id)
            _set(sim, Move(log.partition, CommittedOffset(offset, metadata), before), clients)


def _no_task_runs(sim: Any) -> bool:
    """Wait until all tasks have ended; return whether they have."""
    for _ in range(PATIENCE):
        if not sim.workers:
            return True
        sim.scheduler.sleep(0.5)
    return False


def _set(sim: Any, move: Move, clients: Clients) -> None:
    if not sim.workers:
        offset = move.source
        sim.judge.set_to(sim.source.log(move.partition), offset.offset)
        clients.offsets.reset(move.partition, offset.offset, offset.metadata)


def unblock(sim: Any) -> None:
    """
    Let a person do what the service asks for, and the runbook.

    That is to carry offsets over, to set those that are outside their logs, and to abort what replays have left.
    """
    abort_left_by_replays(sim)
    copies = sim.source.groups[GROUP].stored if sim.setting.two_clusters else {}
    if any(sim.stored(log) is None and log.partition in copies for log in sim.logs):
        sim.operator("carries over", partial(_carry_over, sim))
    if sim.setting.out_of_range != "error":
        return
    for log in sim.logs:
        known = sim.judge.earlier[log.partition]
        if known and (_within(sim, log, known[-1].offset) != known[-1].offset or _is_cut(known[-1])):
            sim.operator(f"unblocks {log.partition}", partial(_unblock, sim, log))


def abort_left_by_replays(sim: Any) -> None:
    """Abort the transactions of replays that hang in the output, once no replay runs whose next one could end them."""
    if any(each.threads and each.name.startswith(REPLAYS) for each in sim.processes):
        return
    ids = transactional_ids(REPLAY_GROUP.format(GROUP))
    over = {each.producer for name, each in sim.sink.transactions.items() if name.startswith(ids) and each.over}
    for log in sim.outputs:
        for producer in over.intersection(log.ongoing):
            sim.history.note("person", "aborts what a replay has left", str(log.partition))
            sim.sink.abort(log.partition, producer)


def _is_cut(stored: Stored) -> bool:
    return OffsetMetadata.parse(stored.metadata).cut is not None


def _carry_over(sim: Any, clients: Clients) -> None:
    """Do what `winnow offsets migrate --from source --to kafka` does, while the service is paused."""
    with _paused(sim, clients):
        if _no_task_runs(sim) and clients.copies is not None:
            partitions = [log.partition for log in sim.logs]
            for move in moves(clients.copies, clients.offsets, partitions, between_clusters=True):
                if move.target is None:
                    _set(sim, move, clients)


def _unblock(sim: Any, log: Log, clients: Clients) -> None:
    def target() -> int | None:
        stored = sim.stored(log)
        return None if stored is None else _within(sim, log, stored)

    _while_paused(sim, log, target, clients)


def _within(sim: Any, log: Log, offset: int) -> int:
    """Return where a person goes on: at the first record that is left, or at the end that the log was cut to."""
    end: int = sim.ends.get(log.partition, offset)
    return max(log.start, min(offset, end))


_HAPPENS: dict[What, Callable[[Any, Event], None]] = {
    What.WRITE: _write,
    What.WRITE_ABORTED: _write_aborted,
    What.WRITE_FORGED: _write_forged,
    What.KILL_TASK: _kill_task,
    What.KILL_DRIVER: _kill_driver,
    What.FREEZE_TASK: _freeze_task,
    What.FREEZE_DRIVER: _freeze_driver,
    What.CUT_OFF_TASK: _cut_off_task,
    What.CUT_OFF_DRIVER: _cut_off_driver,
    What.FAULT: _fault,
    What.BROKERS_DOWN: _brokers_down,
    What.LONG_OUTAGE: _long_outage,
    What.COORDINATOR_MOVES: _coordinator_moves,
    What.GROUP_MOVES: _group_moves,
    What.SLOW_MARKERS: _slow_markers,
    What.SINK_LEADERLESS: _sink_leaderless,
    What.SOURCE_LEADERLESS: _source_leaderless,
    What.SERVICE_STARTS: _start_service,
    What.NEW_GENERATION: _new_generation,
    What.GENERATION_DIES: _generation_dies,
    What.STANDS_BY: _stands_by,
    What.UNTIL_END: _until_end,
    What.SERVICE_STOPS: _service_stops,
    What.ADD_SOURCE: _add_source,
    What.ADD_SINK: _add_sink,
    What.RETENTION: _retention,
    What.TRUNCATION: _truncation,
    What.PAUSE: _pause,
    What.RESET: _reset,
    What.RESTORE: _restore,
    What.PLACEHOLDERS_LOST: _placeholders_lost,
    What.MARK_LOST: _mark_lost,
    What.MOVED_BACK: _moved_back,
    What.REPLAY: _replay,
    What.AUDIT: _audit,
    What.GROUP_LEADERLESS: _group_leaderless,
}
