"""One run: start the system, write, read, do harm, heal, read everything once more. Leaves a history."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException

from tests.chaos.cluster import Size, System, until
from tests.chaos.history import Recorder
from tests.chaos.load import Load, fresh_name
from tests.chaos.nemesis import KILLS, Nemesis, schedule, usual
from tests.chaos.readers import GroupWatcher, Reader, Watcher
from tests.chaos.work import HONEST
from tests.independent import ends

FLOW_SECONDS = 120.0
DRAIN_SECONDS = 180.0
FINAL_SECONDS = 60.0
STEADY_SECONDS = 5.0
USUAL, BRIEF = (3.0, 10.0), (2.0, 5.0)
"""Seconds between two faults, at least and at most."""


@dataclass(frozen=True)
class Plan:
    """
    What to run; the same plan does the same harm in the same order.

    Args:
        seed: decides about faults, victims, pauses and lines.
        seconds: how long harm is done at most; a fault that has begun is healed first.
        faults: which, in this order, instead of all kinds in a random order.
        kills: do nothing but kill processes, of every kind, and that so often at least.
        lines: with `kills`: go on until so many are written.
        arm: which clients the workers use.
        per_second: lines written.
        pause: seconds of peace between two faults, at least and at most.
    """

    seed: int
    seconds: float
    size: Size = field(default_factory=Size)
    faults: tuple[str, ...] = ()
    kills: int = 0
    lines: int = 0
    arm: str = HONEST
    per_second: int = 1_000
    pause: tuple[float, float] = USUAL


def run(plan: Plan, folder: Path) -> Path:
    """Run, and return the path of the history, which is complete even if the run fails."""
    folder.mkdir(parents=True, exist_ok=True)
    with Recorder(folder / "history.jsonl.gz") as recorder:
        told = {"arm": plan.arm, "partitions": plan.size.partitions, "brokers": plan.size.brokers}
        recorder.record("setup", seed=plan.seed, **told, workers=plan.size.workers)
        with System(plan.size, folder, plan.arm, fresh_name(), recorder) as system:
            _live(plan, system, recorder)
            finish(system.broker.bootstrap, system.roles, recorder)
    return recorder.path


def _live(plan: Plan, system: System, recorder: Recorder) -> None:
    """Let lines flow while harm is done, then heal, and wait until everything is through."""
    dice = random.Random(plan.seed)
    where = system.broker.bootstrap
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(Reader("first", where, system.roles, recorder)),
            stack.enter_context(Reader("second", where, system.roles, recorder, **{"fetch.message.max.bytes": 10_000})),
        ]
        stack.enter_context(Watcher(where, system.roles, recorder))
        group = stack.enter_context(GroupWatcher(where, system.name, system.source, recorder))
        load = Load(
            where,
            system.source,
            partitions=plan.size.partitions,
            per_second=plan.per_second,
            recorder=recorder,
            dice=dice,
        )
        with load:
            until(lambda: all(reader.lines for reader in readers) or not system.driver.alive, FLOW_SECONDS)
            assert all(reader.lines for reader in readers), f"nothing came out: {system.driver.noise[-10:]}"
            _harm(plan, system, load, dice)
            time.sleep(STEADY_SECONDS)
        recorder.record("load ended")
        drained = until(lambda: _lag(system, group.committed) == 0, DRAIN_SECONDS)
        recorder.record("drained" if drained else "not drained", lag=_lag(system, group.committed))
        stop(system, recorder)
        until(lambda: all(reader.caught_up(_ends(where, system.roles)) for reader in readers), FINAL_SECONDS)


def _harm(plan: Plan, system: System, load: Load, dice: random.Random) -> None:
    """Do one harm after the other, until it is enough."""
    nemesis, deadline = Nemesis(system, load, dice), time.monotonic() + plan.seconds
    for number, name in enumerate(_faults(plan, system, dice)):
        enough = plan.kills and number >= plan.kills and load.lines >= plan.lines
        if enough or time.monotonic() > deadline:
            break
        nemesis.strike(name)
        time.sleep(min(dice.uniform(*plan.pause), max(0.0, deadline - time.monotonic())))


def _faults(plan: Plan, system: System, dice: random.Random) -> Iterable[str]:
    return plan.faults or schedule(KILLS if plan.kills else usual(system), dice)


def _lag(system: System, committed: dict[int, int]) -> int:
    """Count what the group has not committed yet; -1 if Kafka does not say now."""
    try:
        return sum(
            end - committed.get(number, 0) for (_, number), end in ends(system.broker.bootstrap, system.source).items()
        )
    except KafkaException:
        return -1


def _ends(bootstrap: str, roles: Mapping[str, str]) -> dict[tuple[str, int], int]:
    return {place: end for topic in roles.values() for place, end in ends(bootstrap, topic).items()}


def stop(system: System, recorder: Recorder) -> None:
    """Stop the service as an operator does; what it must not leave behind is looked at afterwards."""
    for driver in list(system.drivers):
        if driver.alive:
            recorder.record("stopped", code=driver.stop())
        system.end_driver(driver)


def finish(bootstrap: str, roles: Mapping[str, str], recorder: Recorder) -> None:
    """Look for what was left open, and read everything once more, from the beginning."""
    watcher = Watcher(bootstrap, roles, recorder)
    assert until(lambda: len(watcher.rows()) == len(watcher.places), FINAL_SECONDS), "Kafka does not tell its offsets"
    recorder.record("finished", rows=watcher.rows())
    Reader("final", bootstrap, roles, recorder).read_to(_ends(bootstrap, roles), FINAL_SECONDS)
