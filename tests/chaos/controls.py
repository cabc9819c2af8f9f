"""Control arms: services that are wrong on purpose, the harm that shows it, and the anomaly that must be found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.chaos.cluster import SMALL
from tests.chaos.run import Plan


@dataclass(frozen=True)
class Control:
    """What to do to an arm, and what the checker must then find."""

    arm: str
    anomaly: str
    faults: tuple[str, ...]

    def plan(self, seed: int) -> Plan:
        """Plan a run that is as short as it can be."""
        return Plan(seed, 120, SMALL, self.faults, arm=self.arm, per_second=400, pause=(1.0, 2.0))


CONTROL_PLANS: Mapping[str, Control] = {
    control.arm: control
    for control in (
        Control("random-ids", "duplicated", ("duplicate attempt", "duplicate attempt", "duplicate attempt")),
        Control("offset-first", "duplicated", ("duplicate attempt", "duplicate attempt", "duplicate attempt")),
        Control("driver-commits", "duplicated", ("worker killed", "worker killed")),
        Control("dead-letters-outside", "torn transaction", ("killed before-commit",)),
        Control("at-least-once", "duplicated", ("killed after-send", "worker killed") * 3),
        Control("kept-producer", "torn transaction", ("EndTxn held",)),
    )
}
