"""Runs the system under faults: write, read, inject faults, repair, read everything once more. Returns a history."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka import KafkaException

from tests.chaos.cluster import Size, System, until
from tests.chaos.commands import AUDIT
from tests.chaos.grouped import LAST_READER
from tests.chaos.harm.refusals import KINDS
from tests.chaos.history import Recorder
from tests.chaos.lines import numbered
from tests.chaos.load import Load, fresh_name
from tests.chaos.nemesis import Nemesis, schedule, usual
from tests.chaos.readers import GroupWatcher, Reader, Watcher
from tests.chaos.resources import Sampler
from tests.chaos.work import AT_LEAST_ONCE, HONEST
from tests.independent import ends, read

FLOW_SECONDS = 900.0
STANDSTILL_SECONDS = 180.0
"""After so long without a commit nothing is expected any more."""
FINAL_SECONDS = 300.0
STEADY_SECONDS = 5.0
KINDS_OF_FINDINGS = ("lost", "doubled", "both", "changed", "out_of_order", "unexplained")
USUAL, BRIEF, RARE = (3.0, 10.0), (2.0, 5.0), (120.0, 240.0)
"""Seconds between two faults, at least and at most."""


@dataclass(frozen=True)
class Plan:
    """
    What to run; the same plan injects the same faults in the same order.

    Args:
        seed: decides the faults, targets, pauses and lines.
        seconds: for how long to inject faults; the last one is repaired even if that takes longer.
        size: how many brokers, Spark workers and partitions.
        faults: inject these, in this order, instead of all kinds in random order.
        only: inject only these, turn after turn in random order; what this size cannot have is left out.
        least: with `only`: how many faults to inject at least.
        lines: with `only`: continue until this many lines are written.
        arm: which clients the workers use; see `tests.chaos.work`.
        may_double: whether the service is to deliver at least once, so that some lines may come again.
        per_second: lines to write per second.
        bad: the fraction of them that must be rejected.
        take_over_every: a later service takes over each time that so many seconds have passed; 0: never.
        pause: seconds between two faults, at least and at most.
        product: the checkout of the service; by default this one.
    """

    seed: int
    seconds: float
    size: Size = field(default_factory=Size)
    faults: tuple[str, ...] = ()
    only: Sequence[str] = ()
    least: int = 0
    lines: int = 0
    arm: str = HONEST
    may_double: bool = False
    per_second: int = 1_000
    bad: float = 0.02
    pause: tuple[float, float] = USUAL
    take_over_every: float = 0.0
    product: Path | None = None


def refusals_plans(
    names: Sequence[str],
    times: int,
    seed: int,
    *,
    rate: int = 200,
    forked: bool = False,
    apart: bool = False,
    product: Path | None = None,
) -> list[Plan]:
    """Return plans that inject each of these `refusals` so many times: one for each system, or for each kind."""
    groups = [[name] for name in names] if apart else by_system(names)
    plans = [_refusals_plan(tuple(group * times), seed, rate, product) for group in groups]
    return [replace(plan, size=replace(plan.size, forked=True)) if forked else plan for plan in plans]


def _refusals_plan(names: tuple[str, ...], seed: int, rate: int, product: Path | None) -> Plan:
    size, arm, may_double = KINDS[names[0]].size, KINDS[names[0]].arm, KINDS[names[0]].arm == AT_LEAST_ONCE
    return Plan(seed, 3600, size, names, arm=arm, may_double=may_double, per_second=rate, pause=BRIEF, product=product)


def by_system(names: Sequence[str]) -> list[list[str]]:
    """Group kinds of harm by the system that they need."""
    groups: dict[tuple[int, str], list[str]] = {}
    for name in names:
        groups.setdefault((id(KINDS[name].size), KINDS[name].arm), []).append(name)
    return list(groups.values())


def run(plan: Plan, folder: Path) -> Path:
    """Run the plan and return the path of the history, which can be read even if the run fails."""
    folder.mkdir(parents=True, exist_ok=True)
    with Recorder(folder / "history.jsonl.gz") as recorder:
        setup = {"arm": plan.arm, "partitions": plan.size.partitions, "brokers": plan.size.brokers}
        recorder.record("setup", seed=plan.seed, **setup, workers=plan.size.workers, may_double=plan.may_double)
        name = fresh_name()
        with System(plan.size, folder, plan.arm, name, recorder=recorder, product=plan.product) as system:
            _run_under_faults(plan, system, recorder)
            if plan.size.replicas or plan.may_double:
                _record_what_is_left(system, recorder)
            conclude(system, recorder)
    return recorder.path


def _run_under_faults(plan: Plan, system: System, recorder: Recorder) -> None:
    """Write and read lines while faults are injected; then stop writing and wait until the output is complete."""
    rng = random.Random(plan.seed)
    where = system.broker.bootstrap
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(Reader("first", where, system.roles, recorder)),
            stack.enter_context(Reader("second", where, system.roles, recorder, **{"fetch.message.max.bytes": 10_000})),
        ]
        stack.enter_context(Watcher(where, system.roles, recorder))
        stack.enter_context(Sampler(system))
        group = stack.enter_context(GroupWatcher(where, system.name, system.source, recorder))
        load = Load(
            where,
            system.source,
            partitions=plan.size.partitions,
            per_second=plan.per_second,
            bad=plan.bad,
            recorder=recorder,
            rng=rng,
        )
        with load:
            until(lambda: all(reader.lines for reader in readers) or not system.driver.alive, FLOW_SECONDS)
            assert all(reader.lines for reader in readers), f"the service writes nothing: {system.driver.noise[-10:]}"
            _inject(plan, system, load, rng)
            time.sleep(STEADY_SECONDS)
        recorder.record("load ended")
        drained = _drain(system, group.committed)
        recorder.record("drained" if drained else "not drained", lag=_lag(system, group.committed))
        stop(system, recorder)
        until(lambda: all(reader.caught_up(_ends(where, system.roles)) for reader in readers), FINAL_SECONDS)


def _inject(plan: Plan, system: System, load: Load, rng: random.Random) -> None:
    """Inject one fault after the other, until the plan is fulfilled or its time is up."""
    nemesis, deadline = Nemesis(system, load, rng), time.monotonic() + plan.seconds
    for number, name in enumerate(_faults(plan, system, rng)):
        enough = plan.only and number >= plan.least and load.lines >= plan.lines
        if enough or time.monotonic() > deadline:
            break
        nemesis.strike(name)
        time.sleep(min(rng.uniform(*plan.pause), max(0.0, deadline - time.monotonic())))


def _faults(plan: Plan, system: System, rng: random.Random) -> Iterable[str]:
    possible = usual(system)
    faults = plan.faults or schedule([name for name in plan.only or possible if name in possible], rng)
    return _with_take_overs(faults, plan.take_over_every) if plan.take_over_every else faults


def _with_take_overs(faults: Iterable[str], every: float) -> Iterator[str]:
    due = time.monotonic() + every
    for name in faults:
        if time.monotonic() >= due:
            due += every
            yield "take-over"
        yield name


def _drain(system: System, committed: dict[int, int]) -> bool:
    """Wait until the group has committed everything, as long as it goes on; a service that has ended is started again."""
    deadline, before = 0.0, -1
    while lag := _lag(system, committed):
        system.revive()
        if lag != before:
            deadline, before = time.monotonic() + STANDSTILL_SECONDS, lag
        elif time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _record_what_is_left(system: System, recorder: Recorder) -> None:
    """Record what the source holds, and where: Kafka itself may have cut acknowledged lines."""
    for record in read(system.broker.bootstrap, system.source):
        stream, number = numbered(record.key, record.value or b"")
        recorder.record("kept", partition=record.partition, offset=record.offset, runs=[[stream, number, 1]])


def _lag(system: System, committed: dict[int, int]) -> int:
    """Return how many source offsets the group has not committed yet; -1 if Kafka does not answer."""
    try:
        return sum(
            end - committed.get(number, 0) for (_, number), end in ends(system.broker.bootstrap, system.source).items()
        )
    except KafkaException:
        return -1


def _ends(bootstrap: str, roles: Mapping[str, str]) -> dict[tuple[str, int], int]:
    return {place: end for topic in roles.values() for place, end in ends(bootstrap, topic).items()}


def stop(system: System, recorder: Recorder) -> None:
    """Stop the service as an operator does."""
    for driver in list(system.drivers):
        if driver.alive:
            recorder.record("stopped", code=driver.terminate())
        system.end_driver(driver)


def conclude(system: System, recorder: Recorder) -> None:
    """Read everything once more, and let the product audit it: its verdict must be that of the checker."""
    finish(system.broker.bootstrap, system.roles, recorder)
    code, verdict, words = system.command("audit", "--from", "1970-01-01", "--json", module=AUDIT)
    counts = {kind: verdict[kind] for kind in KINDS_OF_FINDINGS if kind in verdict}
    if counts:
        counts["not_judged"] = sum(verdict.get("not_judged", {}).values())
    recorder.record("audited", code=code, counts=counts, words=words)


def finish(bootstrap: str, roles: Mapping[str, str], recorder: Recorder) -> None:
    """Record open transactions, and read both output topics once more, from the beginning."""
    watcher = Watcher(bootstrap, roles, recorder)
    assert until(lambda: len(watcher.rows()) == len(watcher.places), FINAL_SECONDS), "Kafka does not report all offsets"
    recorder.record("finished", rows=watcher.rows())
    Reader(LAST_READER, bootstrap, roles, recorder).read_to(_ends(bootstrap, roles), FINAL_SECONDS)
