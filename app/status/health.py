"""The liveness and readiness of the service."""

from __future__ import annotations

from app.status.snapshot import Phase, Snapshot

# A look at Kafka takes half a minute if all its requests time out.
ALIVE_SECONDS = 55.0
# Spark may wait for its cluster before the loop begins.
START_SECONDS = 300.0
BEHIND_LATER = "a later generation is working for this group; this service stands by until it is gone"
BEHIND_EQUAL = "another service is working for this group; this one stands by until it is gone"


def not_alive(snapshot: Snapshot, now: float) -> str:
    """Return why the service should be restarted; empty if it is alive. `now` is in seconds since the epoch."""
    limit = START_SECONDS if snapshot.phase is Phase.STARTING else ALIVE_SECONDS
    silent = now - snapshot.alive
    return f"the driver has given no sign of life for {silent:.0f} s" if silent > limit else ""


def not_ready(snapshot: Snapshot) -> str:
    """Return why the service is not working; empty if it is. A blocked partition does not affect readiness."""
    if snapshot.outage is not None:
        return f"Kafka is not responding: {snapshot.outage}"
    if snapshot.phase is Phase.STARTING and snapshot.paused is not None:
        return ""  # as an operator wants it
    if snapshot.phase is Phase.STARTING and snapshot.taken:
        return BEHIND_LATER
    if snapshot.phase is Phase.STARTING and snapshot.rival is not None:
        return BEHIND_EQUAL
    if snapshot.phase is not Phase.RUNNING:
        return "waiting for the first round" if snapshot.phase is Phase.STARTING else f"the service is {snapshot.phase}"
    return ""
