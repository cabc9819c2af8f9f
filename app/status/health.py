"""Whether the service is alive, and whether it is ready: two questions that whoever restarts it asks."""

from __future__ import annotations

from app.status.snapshot import Phase, Snapshot

# A look at Kafka takes half a minute at worst, where every request of it times out.
ALIVE_SECONDS = 55.0
# Spark may wait for its cluster before the loop begins.
START_SECONDS = 300.0
# Why a service stands by, in the same words for whoever asks whether it is ready and whoever reads its log.
BEHIND_LATER = "a later generation works for this group; this service stands by until that is gone"
BEHIND_EQUAL = "another service works for this group; this one stands by until that is gone"


def not_alive(snapshot: Snapshot, now: float) -> str:
    """Return why the service should be restarted; empty if it should not. `now` is in seconds since the epoch."""
    limit = START_SECONDS if snapshot.phase is Phase.STARTING else ALIVE_SECONDS
    silent = now - snapshot.alive
    return f"the driver has given no sign of life for {silent:.0f} s" if silent > limit else ""


def not_ready(snapshot: Snapshot) -> str:
    """Return why the service does not work now; empty if it does. A partition that is blocked holds up no other."""
    if snapshot.outage is not None:
        return f"Kafka does not answer: {snapshot.outage}"
    if snapshot.phase is Phase.STARTING and snapshot.taken:
        return BEHIND_LATER
    if snapshot.phase is Phase.STARTING and snapshot.rival is not None:
        return BEHIND_EQUAL
    if snapshot.phase is not Phase.RUNNING:
        return "the first round has not begun" if snapshot.phase is Phase.STARTING else f"it is {snapshot.phase}"
    return ""
