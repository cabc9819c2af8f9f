"""Lets Kafka lose records that the service has already cleansed: a replica that fell behind becomes the leader."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.chaos.cluster import CUT, System, stopped, until
from tests.chaos.harm.base import (
    PATIENCE,
    PROGRESS_SECONDS,
    bring_back,
    committed_offsets,
    expect_progress,
    replicas,
    source_ends,
)
from tests.chaos.harm.processes import end_drivers
from tests.chaos.load import Load
from tests.chaos.views import expect_agreement
from tests.independent import commit

CLEANSED_AND_CUT = 200
"""Offsets that the service has committed, and that are cut then."""
SETTLE_SECONDS = 2.0


@contextmanager
def log_truncated(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """
    Cut a partition's end, and let it grow past the committed offset before the service looks again.

    The follower is stopped when it has everything, the leader takes more, and then the follower, all alone, becomes the
    leader (unclean.leader.election.enable). At the end a person does what a person must: sets the offset of the group
    to where the log was cut, with no service running.
    """
    kept = _stand_still(system, load)
    leader, nodes = replicas(system, CUT)
    (follower,) = set(nodes) - {leader}
    with ExitStack() as outage:
        with stopped(system.broker.process(follower)):
            time.sleep(SETTLE_SECONDS)  # its last request must come back empty
            load.pause = False
            if not until(lambda: committed_offsets(system).get(CUT, 0) >= kept + CLEANSED_AND_CUT, PROGRESS_SECONDS):
                what = f"beside a stopped follower: partition {CUT} for {PROGRESS_SECONDS:.0f} s"
                system.recorder.record("seen", anomaly="stuck", what=what)
            outage.enter_context(system.proxy.dropping())
            time.sleep(SETTLE_SECONDS)
            reached = committed_offsets(system).get(CUT, 0)
            yield f"partition {CUT}, offsets {kept} to {reached}"
            system.broker.kill(leader)
        until(lambda: replicas(system, CUT)[0] == follower, PATIENCE)
        until(lambda: source_ends(system, [CUT])[CUT] > reached + CLEANSED_AND_CUT, PATIENCE)
    bring_back(system, leader)
    expect_progress(system, set(range(system.partitions)) - {CUT}, "beside the truncated partition")
    expect_agreement(system, system.driver, "a truncated log")
    end_drivers(system)
    if committed_offsets(system).get(CUT) == reached:
        system.recorder.record("reset", partition=str(CUT))
        commit(system.broker.bootstrap, system.name, {(system.source, CUT): kept})
    system.start_driver()
    expect_progress(system, range(system.partitions), "after its offset was set")


def _stand_still(system: System, load: Load) -> int:
    """Pause the load until every replica has everything and the service has cleansed it; return the partition's end."""
    load.pause = True
    time.sleep(SETTLE_SECONDS)
    until(lambda: system.broker.in_sync, PATIENCE)
    expect_progress(system, [CUT], "before the log is truncated")
    time.sleep(SETTLE_SECONDS)
    return source_ends(system, [CUT])[CUT]
