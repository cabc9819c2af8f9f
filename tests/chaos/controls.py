"""Control arms: services that are broken on purpose, the faults that expose them, and the anomaly that the checker must find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.chaos.cluster import SMALL
from tests.chaos.harm.refusals import KINDS
from tests.chaos.run import Plan

TAKEOVER_UNFENCED = "take-over-unfenced"


@dataclass(frozen=True)
class Control:
    """The faults for an arm, and the anomaly that the checker must find; it may need many lines that are rejected."""

    arm: str
    anomaly: str
    faults: tuple[str, ...]
    bad: float = Plan.bad

    def plan(self, seed: int) -> Plan:
        """Return the plan of a short run, on the smallest system that can have these faults."""
        size = next((KINDS[name].size for name in self.faults if name in KINDS), SMALL)
        return Plan(seed, 3600, size, self.faults, arm=self.arm, per_second=400, bad=self.bad, pause=(1.0, 2.0))


CONTROL_PLANS: Mapping[str, Control] = {
    control.arm: control
    for control in (
        Control("random-ids", "duplicated", ("duplicate attempt", "duplicate attempt", "duplicate attempt")),
        Control(TAKEOVER_UNFENCED, "duplicated", ("take-over",)),
        Control("offset-first", "duplicated", ("duplicate attempt", "duplicate attempt", "duplicate attempt")),
        Control("driver-commits", "duplicated", ("worker killed", "worker killed")),
        Control("dead-letters-outside", "torn transaction", ("killed before-commit",) * 2, bad=0.9),
        Control("at-least-once", "duplicated", ("killed after-send", "worker killed") * 3),
        Control("kept-producer", "torn transaction", ("EndTxn held",) * 3),
        Control("leaderless-stops-all", "stuck", ("source partitions leaderless",)),
        Control("hanging-calls-awaited", "held up", ("sink partition leaderless",)),
        Control("swallowed-refusals", "silent", ("wrong password",)),
        Control("refused-records-again", "stuck", ("limit lowered",)),
        Control("cuts-ignored", "lost", ("log truncated",)),
        Control("added-like-all", "lost", ("partitions added while stopped",)),
        Control("any-owner", "lost", ("other sink in the group",)),
        Control("topics-created", "came back", ("source deleted",)),
    )
}
