"""
Refusals, half-outages and misconfigurations: harm that is not a crash.

Each has a system of the right shape, and a word that the log must say meanwhile: whoever stops or waits tells why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.chaos.cluster import APART, CUTTABLE, FRAGILE, OWN_CLOCKS, SMALL, SPACE_FOR_LITTLE, Size
from tests.chaos.harm import (
    clocks,
    disk,
    generations,
    leaderless,
    lines,
    owners,
    passwords,
    records,
    spoiled,
    topics,
    truncation,
)
from tests.chaos.harm.base import Harm
from tests.chaos.harm.source import added_while_stopped, added_without_siblings
from tests.chaos.work import AT_LEAST_ONCE, HONEST


class Kind(NamedTuple):
    """
    A kind of harm.

    Args:
        harm: does and repairs it.
        size: a system that can have it.
        told: a regular expression that a line of the log must match before it is repaired; empty if the service goes on.
        arm: which service it is done to; see `tests.chaos.arms`.
    """

    harm: Harm
    size: Size = SMALL
    told: str = ""
    arm: str = HONEST


KINDS: Mapping[str, Kind] = {
    "timestamp refused": Kind(records.timestamp_refused),
    "size refused": Kind(records.size_refused),
    "missing key refused": Kind(records.missing_key_refused),
    "limit lowered": Kind(records.limit_lowered),
    "headers forged": Kind(records.headers_forged),
    "source partitions leaderless": Kind(leaderless.of_the_source, FRAGILE, "leader"),
    "sink partition leaderless": Kind(leaderless.of_the_sink, FRAGILE, "leader|deliver|acknowledged"),
    "wrong password": Kind(passwords.wrong, told="(refuses us|denied access).*credentials"),
    "password rotated": Kind(passwords.rotated, told="(refuses us|denied access).*credentials"),
    "other sink in the group": Kind(owners.other_sink, told="two sinks|(an)?other sink"),
    "equal twin": Kind(owners.equal_twin, told="later run|(an)?other (service|owner|run)"),
    "foreign line in the sink": Kind(spoiled.foreign_line),
    "line written again": Kind(spoiled.written_again),
    "take-over": Kind(generations.later, told="taken over by"),
    "take-over, worker killed": Kind(generations.worker_killed, told="taken over by"),
    "take-over, service killed": Kind(generations.service_killed, told="taken over by"),
    "two take-overs": Kind(generations.two_at_once, told="taken over by"),
    "until-end beside the service": Kind(owners.until_end_beside, told="works for group"),
    "stand-by through an outage": Kind(generations.stand_by_through_an_outage, told="kafka_unavailable"),
    "dead letters replayed, LogAppendTime": Kind(lines.dead_letters_replayed),
    "sink.kafka new, source leader away": Kind(lines.sink_moved, APART, "exists only on the source's cluster"),
    "breaker trips": Kind(records.breaker_trips, told="breaker"),
    "breaker trips, workers killed": Kind(records.breaker_trips_and_workers_die, told="breaker"),
    "take-over, at least once": Kind(generations.later, told="taken over by", arm=AT_LEAST_ONCE),
    "log truncated": Kind(truncation.log_truncated, CUTTABLE, "truncat|was cut"),
    "source deleted": Kind(topics.source_deleted, told="(does not|no longer) exist"),
    "sink deleted": Kind(topics.sink_deleted, told="does not exist"),
    "dead letters deleted": Kind(topics.dead_letters_deleted, told="does not exist"),
    "partitions added while stopped": Kind(added_while_stopped),
    "partitions added, siblings leaderless": Kind(added_without_siblings, APART, "leader"),
    "disk full": Kind(disk.full, SPACE_FOR_LITTLE),
    "clocks jump": Kind(clocks.jump, OWN_CLOCKS),
    "paused, dead letters deleted": Kind(topics.deleted_while_paused, told="paused"),
}
TAKEOVERS = tuple(name for name, kind in KINDS.items() if "take-over" in name and kind.arm == HONEST)
