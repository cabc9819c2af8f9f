"""Half of the simulated schedules; a test of its own runs the other half."""

from __future__ import annotations

from tests.simulation.shares import PATIENT, require_no_anomaly


@PATIENT
def test_no_schedule_has_an_anomaly() -> None:
    """Whatever is killed, frozen, lost or late: nothing is lost, doubled, reordered, torn or stuck."""
    require_no_anomaly(1)
