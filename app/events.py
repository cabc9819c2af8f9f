"""
Every event of the log: its name, its level and its sentence.

Alerts match names, so a name never changes. People read sentences, so a sentence may.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

REMIND_SECONDS = 60
"""How often a lasting problem is logged again, under the same name."""


class Event(NamedTuple):
    """One kind of line in the log."""

    name: str
    level: str
    message: str
    """What a person reads, the same in each line of this event."""

    def log(self, **fields: object) -> None:
        getattr(structlog.get_logger(), self.level)(self.name, message=self.message, **fields)


STARTED = Event("started", "info", "The service starts")
PREFLIGHT_WARNING = Event("preflight_warning", "warning", "Preflight found a risk")
STATUS_PAGE_UP = Event("status_page_up", "info", "The status page is up")
PROGRESS = Event("progress", "info", "Progress")
ROUND = Event("round", "info", "A round has ended")
REBALANCE = Event("rebalance", "info", "The round ends so that the partitions can be planned again")
HANDING_OVER = Event(
    "handing_over",
    "info",
    "Asked to stop; the service continues until another one takes over or handover.timeout expires",
)
STOPPING = Event("stopping", "info", "The service stops")
STOPPED = Event("stopped", "info", "The service has stopped")
PARTITIONS_MISSING = Event(
    "partitions_missing", "error", "Partitions were not read to the end: Kafka no longer lists their topics"
)

PARTITION_BLOCKED = Event(
    "partition_blocked", "error", "The partition is blocked until an operator acts; the others continue"
)
PARTITION_UNBLOCKED = Event("partition_unblocked", "info", "The partition is no longer blocked")
PARTITION_WAITING = Event("partition_waiting", "warning", "The partition waits; the others continue")
PARTITION_WAIT_OVER = Event("partition_wait_over", "info", "The partition no longer waits")
PARTITION_STALLED = Event("partition_stalled", "warning", "Records wait, and the committed offset does not move")
PARTITION_FAILED = Event("partition_failed", "warning", "The partition failed; the next round tries again")
PARTITION_RECOVERED = Event("partition_recovered", "info", "The partition recovered")
PARTITION_TROUBLE = Event("partition_trouble", "warning", "The partition has an error; the task tries again")
PARTITION_TROUBLE_OVER = Event("partition_trouble_over", "info", "The partition commits again")
OFFSETS_SKIPPED = Event("offsets_skipped", "warning", "Offsets are skipped, as out.of.range says")
OFFSETS_REREAD = Event("offsets_reread", "warning", "Offsets are read again, as out.of.range says")
OPEN_TRANSACTION = Event(
    "open_transaction", "warning", "An upstream producer keeps a transaction open; records wait behind it"
)

FILTER_OVER_LIMIT = Event("filter_over_limit", "warning", "A filter drops more than its limit")
FILTER_WITHIN_LIMIT = Event("filter_within_limit", "info", "The filter drops no more than its limit")

TASK_LOST = Event("task_lost", "warning", "A task was lost; Spark tries it again")
TASK_STARVED = Event(
    "task_starved", "warning", "A task finds no slot; the round ends so that the partitions can be planned again"
)
TASK_OVERDUE = Event(
    "task_overdue", "warning", "A task does not end; the round ends so that the partitions can be planned again"
)
TASKS_KILLED = Event("tasks_killed", "info", "Tasks are killed; the next round repeats what they have not committed")
ROUND_FAILED = Event("round_failed", "error", "The round failed; the next one continues from the committed offsets")
PARSER_ISOLATED = Event(
    "parser_isolated",
    "warning",
    "The parser runs in a process of its own, so that a record that ends it becomes a dead letter",
)

KAFKA_UNAVAILABLE = Event(
    "kafka_unavailable", "warning", "Kafka is not responding to the driver; running tasks continue"
)
KAFKA_AVAILABLE = Event("kafka_available", "info", "Kafka is responding again")
PAUSED = Event("paused", "warning", "Paused; no records are read")
RESUMED = Event("resumed", "info", "Resumed")
STANDING_BY = Event("standing_by", "warning", "Another service works for this group; this one stands by")
TAKEN_OVER = Event(
    "taken_over", "info", "A later generation takes over; this service continues with its remaining partitions"
)
TAKEOVER_ABANDONED = Event(
    "takeover_abandoned", "warning", "The later generation is gone; this service works on all partitions again"
)
RIVAL = Event("rival", "warning", "Another service works for this group; this one started later and continues")
PARTITIONS_FENCED = Event("partitions_fenced", "warning", "Partitions were fenced, and not by this driver")
MIRROR_FAILING = Event("mirror_failing", "warning", "A mirror of the offsets fails; processing continues")
MIRROR_CAUGHT_UP = Event("mirror_caught_up", "info", "The mirror has caught up")

TRANSACTION_ENDED_AGAIN = Event(
    "transaction_ended_again", "warning", "Repeated the end of a transaction whose offset was still pending"
)
TRANSACTION_ABORTED_AGAIN = Event(
    "transaction_aborted_again", "warning", "Aborted again a transaction whose partitions had no leader when it ended"
)
PLAIN_BACKEND = Event("plain_backend", "warning", "Records become Python objects, which costs more CPU")
SPARK_PROPERTY_OVERRIDDEN = Event("spark_property_overridden", "warning", "Winnow overrides a property of Spark")
JVM_OUTPUT = Event("jvm_output", "warning", "Spark's JVM says something outside its log")
DRIVER_RESTARTING = Event("driver_restarting", "warning", "The driver failed and restarts in its pod")
DRIVER_CRASHED = Event("driver_crashed", "error", "The driver failed for an unknown reason; please report this")
EXECUTORS_LEFT = Event("executors_left", "warning", "Finished executors of earlier drivers stay")
STATUS_PAGE_FAILED = Event("status_page_failed", "error", "The status page could not answer")
