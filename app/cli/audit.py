"""`winnow audit`: whether the sink and the dead letters hold what they must of a range of the source."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from app import config
from app.cli.options import built, configuration, overrides, read, reports_errors
from app.cli.tables import View, as_json, progress, show
from app.driver.clients import Clients
from app.driver.task_config import task_config
from app.model import NOBODY, Destination, Partition, Partitioner, TaskConfig
from app.offsets.history import milliseconds_of
from app.operate.audit import Comparison, Finding, Range, Unit, counted, units, windows
from app.operate.auditing import MARGIN, Auditor, ranges, refuse_lost_times, wait_until_stable
from app.operate.lag import offsets_of
from app.operate.resets import seconds_of

WINDOW, SAMPLED_WINDOWS = 500_000, 100
"""How many records are compared at once, and in how many windows at least a part is cut that is only sampled."""
SHOWN = 100
"""How many findings the table shows; JSON holds all of them."""


@click.command()
@configuration
@overrides
@click.option("--from", "begin", metavar="TIME", help="From the first record at or after a time; UTC without a zone.")
@click.option(
    "--to", "end", metavar="TIME", help="To the first record at or after a time; by default all that is done."
)
@click.option("--last", metavar="DURATION", help="The last 2h, or PT2H.")
@click.option("--sample", type=click.FloatRange(0, 100, min_open=True), metavar="PERCENT", help="Only so much of it.")
@as_json
@reports_errors
def audit(  # click's options
    *,
    file: Path | None,
    assignments: tuple[str, ...],
    begin: str | None,
    end: str | None,
    last: str | None,
    sample: float | None,
    as_json: bool,
) -> int:
    """
    Read a range of the source again, cleanse it, and compare it with the sink and the dead letters.

    Works beside the service, changes nothing. Ends with 1 if a record is lost, doubled, changed or out of order.
    """
    since, until = _times(begin, end, last)
    settings = read(file, assignments).config
    from app.start import clients

    kafka = clients(settings)
    tasks = task_config(settings, kafka.destinations, NOBODY)
    refuse_lost_times(tasks)
    judged = _judged(settings, kafka, tasks, since, until)
    work = _work(tasks, judged, sample)
    records = sum(each.end - each.begin for _, window in work for each in window.values())
    with progress("auditing", records) as advance:
        auditor = _auditor(tasks, kafka, advance)
        compared = [_found(auditor.compare(unit, window)) for unit, window in work]
    return show(_view(settings.group_id, work, compared), as_json=as_json)


class _Compared(NamedTuple):
    """Of one window: how many records were judged, how many lines are known by their text only, and what is wrong."""

    judged: int
    known_by_text: int
    findings: list[Finding]


def _found(comparison: Comparison) -> _Compared:
    """Return what was found; the lines themselves are forgotten."""
    findings = comparison.findings()
    return _Compared(comparison.judged, comparison.known_by_text, findings)


def _times(begin: str | None, end: str | None, last: str | None) -> tuple[int, int | None]:
    if (begin is None) == (last is None) or (last is not None and end is not None):
        raise click.UsageError("give either --from, with or without --to, or --last")
    if last is not None:
        return max(0, round((time.time() - built("--last", lambda: seconds_of(last))) * 1000)), None
    assert begin is not None  # otherwise --last is given
    return built("--from", lambda: milliseconds_of(begin)), None if end is None else built(
        "--to", lambda: milliseconds_of(end)
    )


def _judged(
    settings: config.Config, kafka: Clients, tasks: TaskConfig, since: int, until: int | None
) -> dict[Partition, Range]:
    """Return what is to be judged: no more than what was committed before we look into the sink."""
    found = offsets_of(settings, kafka)
    led = [each.partition for each in found if each.watermarks is not None]
    written = [
        Partition(each.topic, number) for each in (tasks.sink, tasks.dead_letters) for number in range(each.partitions)
    ]
    if not wait_until_stable(kafka.destinations, written):
        click.echo("a transaction in the sink stays open: what it holds back will look lost", err=True)
    begins = kafka.topics.offsets_at(led, since) if led else {}
    ends = {} if until is None or not led else kafka.topics.offsets_at(led, until)
    return ranges(found, kafka.offsets.load(led, stable=False), begins, ends)


def _work(
    tasks: TaskConfig, judged: Mapping[Partition, Range], sample: float | None
) -> Sequence[tuple[Unit, dict[Partition, Range]]]:
    """Return the windows that are compared, each with the partitions where to look; only some of them for a sample."""
    by_key = tasks.sink_partitioner is Partitioner.KEY
    sink, dead_letters = (
        (tasks.sink.topic, tasks.sink.partitions),
        (tasks.dead_letters.topic, tasks.dead_letters.partitions),
    )
    all_units = units(judged, sink, dead_letters, by_key=by_key, anywhere=tasks.lineage)
    records = sum(each.end - each.begin for each in judged.values())
    most = WINDOW if sample is None else max(1, min(WINDOW, records // SAMPLED_WINDOWS))
    work = [
        (unit, window)
        for unit in all_units
        for window in windows({each: judged[each] for each in unit.sources}, most, MARGIN)
    ]
    return work if sample is None else random.sample(work, math.ceil(len(work) * sample / 100))


def _auditor(tasks: TaskConfig, kafka: Clients, advance: Callable[[int], object]) -> Auditor:
    from app.executor.fates import Fates
    from app.kafka.records import KafkaRecords

    timeless = replace(tasks, sink=_without_times(tasks.sink), dead_letters=_without_times(tasks.dead_letters))
    source, output = KafkaRecords(tasks.kafka, tasks.group), KafkaRecords(tasks.output_kafka, tasks.group)
    return Auditor(Fates(timeless), source, output, kafka.destinations, advance, timeless=tasks.sink.append_time)


def _without_times(topic: Destination) -> Destination:
    """Return a topic that takes any timestamp: what it would refuse now, it may have taken then."""
    return replace(topic, before=None, after=None)


def _view(group: str, work: Sequence[tuple[Unit, Mapping[Partition, Range]]], compared: Sequence[_Compared]) -> View:
    records, by_text = sum(each.judged for each in compared), sum(each.known_by_text for each in compared)
    findings = [each for found in compared for each in found.findings]
    counts = counted(findings)
    audited = [
        {"topic": each.topic, "partition": each.number, "begin": part.begin, "end": part.end}
        for _, window in work
        for each, part in sorted(window.items())
    ]
    verdict = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count)
    unsure = f"; {by_text} lines have neither a header nor the time of their record, and are known by their text only"
    verdict = (verdict or "all as they must be") + (unsure if by_text else "")
    more = f"; the table shows the first {SHOWN}" if len(findings) > SHOWN else ""
    return View(
        columns=("WHAT", "TOPIC", "#PARTITION", "#OFFSET", "FOUND-AT", "DETAIL"),
        rows=[
            (each.kind.value, *each.partition, each.offset, each.found_at or None, each.detail)
            for each in findings[:SHOWN]
        ],
        value={
            "version": 1,
            "group": group,
            "records": records,
            "known_by_text": by_text,
            **counts,
            "findings": [each.as_json() for each in findings],
            "audited": audited,
        },
        code=1 if findings else 0,
        footer=f"group {group}: {records} records audited: {verdict}{more}",
    )
