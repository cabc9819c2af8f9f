"""Lets Kafka lose records that the service has already cleansed: a replica that fell behind becomes the leader."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.cluster import CUT, System, stopped, until
from tests.chaos.harm.base import PATIENCE, expect_progress, source_ends
from tests.chaos.harm.processes import end_drivers
from tests.chaos.load import Load
from tests.independent import commit, committed

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
    leader, follower = _replicas(system)
    place = (system.source, CUT)
    kept = _stand_still(system, load)
    with stopped(system.broker.process(follower)):
        load.pause = False
        until(lambda: _committed(system) >= kept + CLEANSED_AND_CUT, PATIENCE)
        system.proxy.dropping = True
        time.sleep(SETTLE_SECONDS)
        reached = _committed(system)
        yield f"partition {CUT}, offsets {kept} to {reached}"
        system.broker.kill(leader)
    until(lambda: _replicas(system)[0] == follower, PATIENCE)
    until(lambda: source_ends(system, [CUT])[CUT] > reached + CLEANSED_AND_CUT, PATIENCE)
    system.proxy.dropping = False
    system.proxy.cut()
    system.broker.start(leader)
    until(lambda: system.broker.in_sync, PATIENCE)
    expect_progress(system, set(range(system.partitions)) - {CUT}, "beside the truncated partition")
    end_drivers(system)
    if committed(system.broker.bootstrap, system.name, system.source).get(place) == reached:
        commit(system.broker.bootstrap, system.name, {place: kept})
        system.recorder.record("reset", partition=str(CUT))
    system.start_driver()
    expect_progress(system, range(system.partitions), "after its offset was set")


def _replicas(system: System) -> tuple[int, int]:
    """Return the leader of the partition, and its other node; -1 where there is no leader."""
    known = system.broker.admin().list_topics(system.source, timeout=30).topics[system.source].partitions[CUT]
    (other,) = set(known.replicas) - {known.leader} if known.leader >= 0 else {-1}
    return known.leader, other


def _stand_still(system: System, load: Load) -> int:
    """Pause the load until every replica has everything and the service has cleansed it; return the partition's end."""
    load.pause = True
    time.sleep(SETTLE_SECONDS)
    until(lambda: system.broker.in_sync, PATIENCE)
    expect_progress(system, [CUT], "before the log is truncated")
    time.sleep(SETTLE_SECONDS)
    return source_ends(system, [CUT])[CUT]


def _committed(system: System) -> int:
    return committed(system.broker.bootstrap, system.name, system.source).get((system.source, CUT), 0)
