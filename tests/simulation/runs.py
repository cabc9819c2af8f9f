"""Runs many schedules, and makes a failing one readable: a shorter list of events, and the history."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tests.simulation.arms import ARMS
from tests.simulation.events import HEAL_SECONDS, Event, What, draw
from tests.simulation.judge import Anomaly
from tests.simulation.network import QUESTIONS
from tests.simulation.schedule import Result, Setting, Simulation
from tests.simulation.world import installed

OTHER_ORDERS = 10
"""How many other orders a shorter list of events is tried with: without an event, everything behind it comes elsewhere."""


@dataclass(frozen=True)
class Plan:
    """A schedule that can be repeated: the seed of all latencies, the setting, and the events."""

    seed: int
    setting: Setting
    events: Sequence[Event]

    @classmethod
    def of(cls, seed: int) -> Plan:
        setting, events = Setting.of(seed), draw(seed)
        if any(each.kind is What.PLACEHOLDERS_LOST for each in events):
            setting = replace(setting, two_clusters=True)  # one cluster has no placeholders
        return cls(seed, setting, events)

    def run(self, *, kept: bool = False) -> Result:
        """Run it; call it inside `installed`."""
        return Simulation(self.seed, self.setting, kept=kept).run(self.events, HEAL_SECONDS)


@dataclass
class Report:
    """What came of many schedules."""

    schedules: int = 0
    steps: int = 0
    seconds: float = 0.0
    """The simulated time."""
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: dict[int, Anomaly] = field(default_factory=dict)
    """The first anomaly of each seed that has one."""
    gaps: int = 0
    """How many transactions met a known gap (docs/guarantees.md)."""

    def __add__(self, other: Report) -> Report:
        return Report(
            self.schedules + other.schedules,
            self.steps + other.steps,
            self.seconds + other.seconds,
            self.answers + other.answers,
            self.failed | other.failed,
            self.gaps + other.gaps,
        )

    def __str__(self) -> str:
        return (
            f"{self.schedules:,} schedules, {self.steps:,} steps, {self.seconds / 3600:,.1f} simulated hours, "
            f"{len(self.answers)} branches (kinds of answers), {self.gaps} known gaps, {len(self.failed)} anomalies"
        )


def search(seeds: Iterable[int], arm: str = "honest", *, until_found: bool = False) -> Report:
    """Run the schedules of these seeds, perhaps only until one fails."""
    report = Report()
    with installed(), ARMS[arm](), _rarely_collected():
        for seed in seeds:
            result = Plan.of(seed).run()
            found = {seed: result.anomalies[0]} if result.anomalies else {}
            report += Report(1, result.steps, result.seconds, result.answers, found, result.gaps)
            if found and until_found:
                break
    return report


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """
    Collect garbage after 50,000 new objects, not 700, and never look at what is loaded: that took time in each schedule.

    What is loaded stays exempt: `gc.unfreeze` would also undo what the session of tests has exempted.
    """
    often = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
    try:
        yield
    finally:
        gc.set_threshold(*often)


def shrunk(plan: Plan, name: str, arm: str = "honest") -> Plan:
    """Return a plan with as few events as possible that still shows an anomaly of this name."""
    with installed(), ARMS[arm]():
        smaller: Plan | None = plan
        while smaller is not None:
            plan, smaller = smaller, _smaller(smaller, name)
    return plan


def _smaller(plan: Plan, name: str) -> Plan | None:
    """Return a plan without some of the events that still fails, first without many; None if there is none."""
    size = max(1, len(plan.events) // 2)
    while size:
        for begin in range(0, len(plan.events), size):
            candidate = replace(plan, events=[*plan.events[:begin], *plan.events[begin + size :]])
            if (failing := _failing(candidate, name)) is not None and len(candidate.events) < len(plan.events):
                return failing
        size //= 2
    return None


def _failing(plan: Plan, name: str) -> Plan | None:
    """Return a plan with these events that fails, perhaps in another order; None if none was found."""
    for other in range(OTHER_ORDERS):
        candidate = replace(plan, seed=plan.seed + 1_000_003 * other)
        if any(each.name == name for each in candidate.run().anomalies):
            return candidate
    return None


def told(plan: Plan, arm: str = "honest") -> str:
    """Return the events and the history of a schedule, for a person."""
    with installed(), ARMS[arm]():
        result = plan.run(kept=True)
    events = "\n".join(map(str, plan.events))
    history = "\n".join(result.history.told(*QUESTIONS))
    anomalies = "\n".join(map(str, result.anomalies)) or "no anomaly"
    return f"seed {plan.seed}, arm {arm}, {plan.setting}\n\nEvents\n{events}\n\nHistory\n{history}\n\n{anomalies}"
