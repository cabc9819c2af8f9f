"""
Every event of the log: its name, its level and its sentence.

Alerts match names, so a name never changes. People read sentences, so a sentence may.
"""

from __future__ import annotations

import sys
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
    about: str
    """What the documentation adds: when it is logged, and which fields it has."""

    def log(self, **fields: object) -> None:
        """Write a line of this event to the log of this process."""
        getattr(structlog.get_logger(), self.level)(self.name, message=self.message, **fields)


def every() -> list[Event]:
    """Return all events, in the order in which the documentation lists them."""
    return [value for value in vars(sys.modules[__name__]).values() if isinstance(value, Event)]


STARTED = Event(
    "started",
    "info",
    "The service starts",
    "Once. Names the version of Winnow, Python, PySpark and librdkafka, the backend (`engine`), the `generation`, the "
    "`guarantee` and the topics.",
)
PREFLIGHT_WARNING = Event(
    "preflight_warning", "warning", "Preflight found a risk", "At the start, once for each `finding`."
)
STATUS_PAGE_UP = Event("status_page_up", "info", "The status page is up", "Once, with its `url`.")
PROGRESS = Event(
    "progress",
    "info",
    "Progress",
    "Every `round.interval`, with `exactly-once` only: `records` since the last line, how many of them were `dead` "
    "letters, the `lag` of all partitions, and the rate.",
)
ROUND = Event("round", "info", "A round has ended", "After each round, with its totals.")
REBALANCE = Event(
    "rebalance",
    "info",
    "The round ends so that the partitions can be planned again",
    "When partitions, topics or slots come or go, the work becomes uneven or a partition stalls; `reason` says which.",
)
HANDING_OVER = Event(
    "handing_over",
    "info",
    "Asked to stop; the service works on until another one takes over or handover.timeout expires",
    "On SIGTERM, if `handover.timeout` is set. A second signal stops the service at once.",
)
STOPPING = Event("stopping", "info", "The service stops", "Once, with the `cause`.")
STOPPED = Event(
    "stopped",
    "info",
    "The service has stopped",
    "The last line: the `cause` (a signal, `done`, the error, or `taken over by …`) and the totals since the start.",
)

PARTITION_BLOCKED = Event(
    "partition_blocked",
    "error",
    "The partition is blocked until a person acts; the others go on",
    "At once, then every minute. `error` says what to do.",
)
PARTITION_UNBLOCKED = Event("partition_unblocked", "info", "The partition is no longer blocked", "When it ends.")
PARTITION_WAITING = Event(
    "partition_waiting",
    "warning",
    "The partition waits; the others go on",
    "At once, then every minute: it has no leader, or a sink or dead-letter partition that it writes to has none, or "
    "has fewer in-sync replicas than `min.insync.replicas`.",
)
PARTITION_WAIT_OVER = Event("partition_wait_over", "info", "The partition no longer waits", "When it ends.")
PARTITION_STALLED = Event(
    "partition_stalled",
    "warning",
    "Records wait, and the committed offset does not move",
    "Every minute, if the offset has not moved for two minutes.",
)
PARTITION_FAILED = Event(
    "partition_failed",
    "warning",
    "The partition failed; the next round tries again",
    "When a round ends with an error. You need not act.",
)
PARTITION_RECOVERED = Event(
    "partition_recovered",
    "info",
    "The partition recovered",
    "When a task went on after an `error` with a new producer.",
)
PARTITION_TROUBLE = Event(
    "partition_trouble",
    "warning",
    "The partition has an error; the task tries again",
    "In the log of the executor: at once, then every minute.",
)
PARTITION_TROUBLE_OVER = Event(
    "partition_trouble_over", "info", "The partition commits again", "In the log of the executor, when it ends."
)
OFFSETS_SKIPPED = Event(
    "offsets_skipped",
    "warning",
    "Offsets are skipped, as out.of.range says",
    "Once, with `start`, `end` (exclusive) and how many are `lost`.",
)
OFFSETS_REREAD = Event(
    "offsets_reread",
    "warning",
    "Offsets are read again, as out.of.range says",
    "Once, with `start`, `end` (exclusive) and how many come `again`.",
)
OPEN_TRANSACTION = Event(
    "open_transaction",
    "warning",
    "An upstream producer keeps a transaction open; records wait behind it",
    "Every minute: for how long, how many records wait, and the `cure`.",
)

TASK_LOST = Event("task_lost", "warning", "A task was lost; Spark tries it again", "When it happens. You need not act.")
TASK_STARVED = Event(
    "task_starved",
    "warning",
    "A task finds no slot; the round ends so that the partitions can be planned again",
    "When it happens.",
)
TASK_OVERDUE = Event(
    "task_overdue",
    "warning",
    "A task does not end; the round ends so that the partitions can be planned again",
    "When it happens.",
)
TASKS_KILLED = Event(
    "tasks_killed",
    "info",
    "Tasks are killed; the next round repeats what they have not committed",
    "When a round ends before its tasks do.",
)
ROUND_FAILED = Event(
    "round_failed",
    "error",
    "The round failed; the next one goes on from the committed offsets",
    "When Spark gives up on a round; nothing is lost. `reason` says why.",
)
PARSER_ISOLATED = Event(
    "parser_isolated",
    "warning",
    "The parser runs in a process of its own, because a record may have ended the workers before",
    "In the log of the executor, after workers have died or hung.",
)

KAFKA_UNAVAILABLE = Event(
    "kafka_unavailable",
    "warning",
    "Kafka is not responding to the driver; running tasks continue",
    "At once, then every minute, while Kafka or the offset store is not responding. If Kafka refuses the service "
    "(password, certificate, ACL) for some seconds, it ends with exit code 3.",
)
KAFKA_AVAILABLE = Event("kafka_available", "info", "Kafka is responding again", "When it ends.")
PAUSED = Event(
    "paused",
    "warning",
    "Paused; no records are read",
    "At once, then every minute: since when, and from where `winnow pause` was given.",
)
RESUMED = Event("resumed", "info", "Resumed", "When the pause ends.")
STANDING_BY = Event(
    "standing_by",
    "warning",
    "Another service works for this group; this one stands by",
    "At once, then every minute, until the other one is gone.",
)
TAKEN_OVER = Event(
    "taken_over",
    "info",
    "A later generation takes over; this service goes on with the partitions that it still has",
    "At each step: `by` which service, and how many partitions are `taken`.",
)
TAKEOVER_ABANDONED = Event(
    "takeover_abandoned",
    "warning",
    "The later generation is gone; this service works on all partitions again",
    "A minute after the last sign of life of the later generation.",
)
RIVAL = Event(
    "rival",
    "warning",
    "Another service works for this group; this one started later and goes on",
    "At once, then every minute. `rival` names the other service: stop one of the two.",
)
PARTITIONS_FENCED = Event(
    "partitions_fenced",
    "warning",
    "Partitions were fenced, and not by this driver",
    "When it happens: how many, and who has committed their offsets since.",
)
MIRROR_FAILING = Event(
    "mirror_failing",
    "warning",
    "A mirror of the offsets fails; the flow goes on",
    "At once, then every minute: which `mirror`, its `error`, and how many partitions are `waiting`.",
)
MIRROR_CAUGHT_UP = Event("mirror_caught_up", "info", "The mirror has caught up", "When it ends.")

TRANSACTION_ENDED_AGAIN = Event(
    "transaction_ended_again",
    "warning",
    "Repeated the end of a transaction whose offset was still pending",
    "In the log of the executor, after Kafka left the end of a transaction unwritten; `committed` says how it ended.",
)
TRANSACTION_ABORTED_AGAIN = Event(
    "transaction_aborted_again",
    "warning",
    "Aborted again a transaction whose partitions had no leader when it ended",
    "In the log of the executor, after Kafka left the end of a transaction unwritten in these `partitions`.",
)
PLAIN_BACKEND = Event(
    "plain_backend",
    "warning",
    "Records become Python objects, which costs more CPU",
    "Once in each process; `reason` says why the bulk backend cannot be used.",
)
SPARK_PROPERTY_OVERRIDDEN = Event(
    "spark_property_overridden",
    "warning",
    "Winnow overrides a property of Spark",
    "At the start: which `property`, what was `found`, what is `used`, and why.",
)
DRIVER_RESTARTING = Event(
    "driver_restarting",
    "warning",
    "The driver failed and restarts in its pod",
    "On Kubernetes: the `attempt`, and in how many seconds.",
)
DRIVER_CRASHED = Event(
    "driver_crashed",
    "error",
    "The driver failed for an unknown reason; please report this",
    "On Kubernetes, with the exception.",
)
EXECUTORS_LEFT = Event(
    "executors_left",
    "warning",
    "Finished executors of earlier drivers stay",
    "On Kubernetes, if the cluster denies their deletion; `reason` says why.",
)
STATUS_PAGE_FAILED = Event(
    "status_page_failed", "error", "The status page could not answer", "With the `path` and the exception."
)
