"""
Every event of the log: its name, its level and its sentence.

Alerts match names, so a name never changes; it is that of the constant, in lower case. People read sentences, so a
sentence may.
"""

from __future__ import annotations

from enum import Enum, unique

import structlog

REMIND_SECONDS = 60
"""How often a lasting problem is logged again, under the same name."""


@unique
class Event(Enum):
    """One kind of line in the log: its level, and what a person reads, the same in each line of this event."""

    STARTED = "info", "The service starts"
    PREFLIGHT_WARNING = "warning", "Preflight found a risk"
    STATUS_PAGE_UP = "info", "The status page is up"
    PROGRESS = "info", "Progress"
    ROUND = "info", "A round has ended"
    REBALANCE = "info", "The round ends so that the partitions can be planned again"
    HANDING_OVER = (
        "info",
        "Asked to stop; the service continues until another one takes over or handover.timeout expires",
    )
    STOPPING = "info", "The service stops"
    STOPPED = "info", "The service has stopped"
    PARTITIONS_MISSING = "error", "Partitions were not read to the end: Kafka no longer lists their topics"

    PARTITION_BLOCKED = "error", "The partition is blocked until an operator acts; the others continue"
    PARTITION_UNBLOCKED = "info", "The partition is no longer blocked"
    PARTITION_WAITING = "warning", "The partition waits; the others continue"
    PARTITION_WAIT_OVER = "info", "The partition no longer waits"
    PARTITION_STALLED = "warning", "Records wait, and the committed offset does not move"
    PARTITION_FAILED = "warning", "The partition failed; the next round tries again"
    PARTITION_RECOVERED = "info", "The partition recovered"
    PARTITION_TROUBLE = "warning", "The partition has an error; the task tries again"
    PARTITION_TROUBLE_OVER = "info", "The partition commits again"
    OFFSETS_SKIPPED = "warning", "Offsets are skipped, as out.of.range says"
    OFFSETS_REREAD = "warning", "Offsets are read again, as out.of.range says"
    OPEN_TRANSACTION = "warning", "An upstream producer keeps a transaction open; records wait behind it"

    FILTER_OVER_LIMIT = "warning", "A filter drops more than its limit"
    FILTER_WITHIN_LIMIT = "info", "The filter drops no more than its limit"

    TASK_LOST = "warning", "A task was lost; Spark tries it again"
    TASK_STARVED = "warning", "A task finds no slot; the round ends so that the partitions can be planned again"
    TASK_OVERDUE = "warning", "A task does not end; the round ends so that the partitions can be planned again"
    TASKS_KILLED = "info", "Tasks are killed; the next round repeats what they have not committed"
    ROUND_FAILED = "error", "The round failed; the next one continues from the committed offsets"
    PARSER_ISOLATED = (
        "warning",
        "The parser runs in a process of its own, so that a record that ends it becomes a dead letter",
    )

    KAFKA_UNAVAILABLE = "warning", "Kafka is not responding to the driver; running tasks continue"
    KAFKA_AVAILABLE = "info", "Kafka is responding again"
    PAUSED = "warning", "Paused; no records are read"
    RESUMED = "info", "Resumed"
    STANDING_BY = "warning", "Another service works for this group; this one stands by"
    TAKEN_OVER = "info", "A later generation takes over; this service continues with its remaining partitions"
    TAKEOVER_ABANDONED = "warning", "The later generation is silent; its partitions are this service's again"
    RIVAL = "warning", "Another service works for this group; this one started later and continues"
    PARTITIONS_FENCED = "warning", "Partitions were fenced, and not by this driver"
    MIRROR_FAILING = "warning", "A mirror of the offsets fails; processing continues"
    MIRROR_CAUGHT_UP = "info", "The mirror has caught up"

    TRANSACTION_ENDED_AGAIN = "warning", "Repeated the end of a transaction whose offset was still pending"
    TRANSACTION_ABORTED_AGAIN = "info", "Aborted again a transaction that may still have been open in its partitions"
    PLAIN_BACKEND = "warning", "Records become Python objects, which costs more CPU"
    SPARK_PROPERTY_OVERRIDDEN = "warning", "Winnow overrides a property of Spark"
    JVM_OUTPUT = "warning", "Spark's JVM says something outside its log"
    DRIVER_RESTARTING = "warning", "The driver failed and restarts in its pod"
    DRIVER_CRASHED = "error", "The driver failed for an unknown reason; please report this"
    EXECUTORS_LEFT = "warning", "Finished executors of earlier drivers stay"
    STATUS_PAGE_FAILED = "error", "The status page could not answer"

    def __init__(self, level: str, message: str) -> None:
        self.level, self.message = level, message

    @property
    def key(self) -> str:
        """Its name in the log."""
        return self.name.lower()

    def log(self, **fields: object) -> None:
        getattr(structlog.get_logger(), self.level)(self.key, message=self.message, **fields)
