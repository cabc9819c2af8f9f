"""
Services that are wrong on purpose because a part of the product is replaced, in the driver or in Spark's workers.

Each lacks one protection. Those that have other clients are in `work`. Parts are found by name, because an older checkout
of the product may not have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple


def _nothing() -> None:
    """Replace nothing."""


class Arm(NamedTuple):
    """What to replace, in which process."""

    in_driver: Callable[[], None] = _nothing
    in_worker: Callable[[], None] = _nothing


def _part(module: str) -> Any:
    """Return a module of the product."""
    return import_module(f"app.{module}")


def _leaderless_stops_all() -> None:
    """Wrong: discovery fails as a whole if one partition has no leader."""
    discovery, unreachable = _part("driver.discover").Discovery, _part("errors").Unreachable
    per_partition = discovery._source_offsets

    def all_or_nothing(self: Any, *, stable: bool) -> Any:
        found = per_partition(self, stable=stable)
        if found.unreadable:
            raise unreachable("a source partition has no leader")
        return found

    discovery._source_offsets = all_or_nothing


def _hanging_calls_are_awaited() -> None:
    """Wrong: a task waits for a lane that cannot deliver, and nothing else ends the wait within 50 s."""
    calls, settings = _part("executor.calls"), _part("kafka.settings")
    calls.Call.hangs = calls.Calls._hangs = lambda *_: False
    _part("kafka.writers").CONTROL_SECONDS = 50.0
    fencing = settings.fencing
    settings.fencing = lambda group, _, partition: fencing(group, 60.0, partition)  # librdkafka delivers for as long


def _swallowed_refusals() -> None:
    """Wrong: a refusal by Kafka is never final, and nobody is told."""
    _part("driver.retry").Refusals.are_final = lambda *_: False
    _part("driver.tracker").StatusTracker.kafka_is_away = lambda *_: None


def _refused_records_are_sent_again() -> None:
    """Wrong: a refused record is treated as a passing error."""
    _part("kafka.failures").RECORD_REFUSED = frozenset()


def _limits_are_read_once() -> None:
    """Wrong: a later round works with the limits that the topics had at the start."""
    service, first = _part("driver.service"), list[Any]()
    make = service.task_config

    def once(*given: Any) -> Any:
        first.extend([] if first else [make(*given)])
        return first[0]

    service.task_config = once


def _cuts_are_ignored() -> None:
    """Wrong: a log that was cut and has grown again is read on from the group's offset."""
    consumer, failures, transient = (
        _part("kafka.consumer").TaskConsumer,
        _part("kafka.failures"),
        _part("errors").Transient,
    )
    start = consumer.start
    consumer.start = lambda self, partition, offset, *_: start(self, partition, offset)
    failures.Truncated = lambda partition, *_: transient(partition, "its log was cut")


def _cuts_are_forgotten() -> None:
    """Wrong: the same, in the driver."""
    for module in ("driver.starting_offsets", "driver.discover"):
        _part(module).cut_of = lambda *_: None


def _added_partitions_start_like_all() -> None:
    """Wrong: a partition that was added while the service was stopped starts where `starting.offsets` says."""
    _part("driver.newcomers").is_witness = lambda *_: False


def _any_owner_will_do() -> None:
    """Wrong: nobody checks who else commits the group's offsets."""
    _part("driver.owners").Owners.observe = lambda *_: None


def _topics_are_created() -> None:
    """Wrong: asking about a topic creates it."""
    _part("kafka.settings").NO_NEW_TOPICS = {"allow.auto.create.topics": True}


ARMS: Mapping[str, Arm] = {
    "leaderless-stops-all": Arm(in_driver=_leaderless_stops_all),
    "hanging-calls-awaited": Arm(in_worker=_hanging_calls_are_awaited),
    "swallowed-refusals": Arm(in_driver=_swallowed_refusals),
    "refused-records-again": Arm(in_driver=_limits_are_read_once, in_worker=_refused_records_are_sent_again),
    "cuts-ignored": Arm(in_driver=_cuts_are_forgotten, in_worker=_cuts_are_ignored),
    "added-like-all": Arm(in_driver=_added_partitions_start_like_all),
    "any-owner": Arm(in_driver=_any_owner_will_do),
    "topics-created": Arm(in_driver=_topics_are_created, in_worker=_topics_are_created),
}
WHOLE = Arm()


def arm_of(name: str) -> Arm:
    """Return what an arm replaces: nothing, for the honest one and for those that have other clients."""
    return ARMS.get(name, WHOLE)
