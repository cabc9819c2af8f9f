"""What the reference pages list: each key, metric and event, as the product declares it."""

from __future__ import annotations

from collections.abc import Iterator

from app.config.model import declared, duration
from app.status import metrics


def keys() -> Iterator[tuple[str, str, str]]:
    """Yield each key of the configuration with its default and meaning."""
    for name, field in declared():
        yield name, "" if field.is_required() else _default(field.get_default()), field.description or ""


def _default(default: object) -> str:
    match default:
        case None | ():
            return ""
        case bool():
            return str(default).lower()
        case float():
            return duration(default)
        case dict():
            return ", ".join(f"{name}: {value}" for name, value in default.items())
    return str(default)


def all_metrics() -> Iterator[tuple[str, str, str]]:
    """Yield each metric with its labels, but the group, and its meaning."""
    for of_partition in metrics.PARTITIONS:
        yield of_partition.name, "topic, partition", of_partition.meaning
    for labelled in (metrics.CONDITION, metrics.DEAD_LETTERS, metrics.FILTERED, metrics.ROUNDS):
        yield labelled.name, ", ".join(labelled.labels), labelled.meaning
    for of_task in metrics.TASKS:
        yield of_task.name, "task", of_task.meaning
    for times in metrics.TIMES:
        yield times.name, "", f"{times.meaning}: a histogram"
    for of_service in metrics.SERVICE:
        yield of_service.name, "", of_service.meaning
    yield metrics.BUILD.name, ", ".join(metrics.BUILD.labels), metrics.BUILD.meaning
