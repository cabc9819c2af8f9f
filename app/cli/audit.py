"""`winnow audit`: compares a range of the source with the sink and the dead letters."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from app import config
from app.cli.options import built, configuration, overrides, read, refuse_backward, reports_errors
from app.cli.tables import View, as_json, progress, show
from app.driver.clients import Clients
from app.driver.task_config import task_config
from app.model import NOBODY, Destination, Partition, TaskConfig
from app.offsets.history import milliseconds_of
from app.operate.audit import Verdict
from app.operate.auditing import Auditor, End, Readers, refuse_lost_times, stable_ends
from app.operate.lag import offsets_of
from app.operate.ranges import CURES, Asked, Layout, LeftOut, Range, Why, packed, ranges, sampled, together
from app.operate.resets import seconds_of
from app.operate.verdict import counted

MOST = 10_000_000
"""How many records are compared together, in about 0.6 GB of memory."""
SHOWN = 100
"""How many findings the table shows; JSON has all of them."""
NAMED = 5
"""How many partitions the last line names for each reason; JSON has all of them."""
NOT_JUDGED = 4
"""The exit code if nothing is wrong but not everything could be judged."""


@click.command()
@configuration
@overrides
@click.option(
    "--from", "begin", metavar="TIME", help="Start at the first record at or after this time; UTC unless it has a zone."
)
@click.option(
    "--to", "end", metavar="TIME", help="Stop at the first record at or after this time; by default audit all of it."
)
@click.option("--last", metavar="DURATION", help="Audit the last 2h (or PT2H).")
@click.option(
    "--sample", type=click.FloatRange(0, 100, min_open=True), metavar="PERCENT", help="Audit only a random sample."
)
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
    Verify the sink and the dead letters against the source.

    Cleanses a range of the source again and compares the result with what was written. Changes nothing; the service may
    be running. Exits with 1 if something is wrong, and with 4 if nothing is wrong but not everything could be judged.
    """
    since, until = _times(begin, end, last)
    settings = read(file, assignments).config
    from app.start import clients

    kafka = clients(settings)
    tasks = task_config(settings, kafka.destinations, NOBODY)
    scope = _scope(settings, kafka, tasks, since, until)
    judged = scope.judged if sample is None else sampled(scope.judged, sample)
    times = (since, math.inf if until is None else until) if sample is None else None
    with progress("auditing", sum(each.offsets for each in judged.values())) as advance:
        auditor = _auditor(tasks, kafka, scope, times, advance)
        verdicts = [
            auditor.compare(sources, {each: judged[each] for each in sources if each in judged})
            for sources in _packs(scope, judged)
        ]
    return show(_view(settings.group_id, scope.left_out, judged, verdicts, sample), as_json=as_json)


class _Scope(NamedTuple):
    """
    What to audit.

    Args:
        sources: all source partitions.
        judged: what can be judged of them.
        left_out: what cannot.
        ends: the ends of the partitions of sink and dead letters.
    """

    layout: Layout
    sources: Sequence[Partition]
    judged: Mapping[Partition, Range]
    left_out: Sequence[LeftOut]
    ends: Mapping[Partition, End]


def _times(begin: str | None, end: str | None, last: str | None) -> tuple[int, int | None]:
    if (begin is None) == (last is None) or (last is not None and end is not None):
        raise click.UsageError("give either --from (and perhaps --to) or --last")
    if last is not None:
        return max(0, round((time.time() - built("--last", lambda: seconds_of(last))) * 1000)), None
    assert begin is not None  # otherwise --last is given
    since = max(0, built("--from", lambda: milliseconds_of(begin)))
    until = None if end is None else built("--to", lambda: milliseconds_of(end))
    refuse_backward("--to", since, until)
    return since, until


def _scope(settings: config.Config, kafka: Clients, tasks: TaskConfig, since: int, until: int | None) -> _Scope:
    """Return what to audit: at most what was committed before the sink's ends are read."""
    found = offsets_of(settings, kafka)
    topics = [kafka.topics.destination(name) for name in sorted({each.partition.topic for each in found})]
    layout = Layout.of(tasks, topics)
    refuse_lost_times(layout)
    led = [each.partition for each in found if each.watermarks is not None]
    written = [
        Partition(each.topic, number) for each in (tasks.sink, tasks.dead_letters) for number in range(each.partitions)
    ]
    stable = stable_ends(kafka.destinations, written)
    asked = Asked(
        since,
        until,
        kafka.topics.offsets_at(led, since),
        {} if until is None else kafka.topics.offsets_at(led, until),
        kafka.topics.offsets_at(led, 0),
        {each.topic: None if each.retention is None else round(time.time() * 1000) - each.retention for each in topics},
    )
    judged, left_out = ranges(found, kafka.offsets.load(led, stable=False), asked)
    return _Scope(layout, [each.partition for each in found], judged, left_out, stable)


def _packs(scope: _Scope, judged: Mapping[Partition, Range]) -> list[list[Partition]]:
    """Return groups of source partitions to compare together."""
    sizes = {each: found.read for each, found in judged.items()}
    groups = [each for each in together(scope.layout, scope.sources) if judged.keys() & each]
    for group in groups:
        if (size := sum(sizes.get(each, 0) for each in group)) > MOST:
            msg = f"{size} records share sink partitions and must be compared together, but at most {MOST} can be: "
            raise click.UsageError(f"{msg}narrow the range with --from and --to, or use --sample")
    return packed(groups, sizes, MOST)


def _auditor(
    tasks: TaskConfig,
    kafka: Clients,
    scope: _Scope,
    times: tuple[int, float] | None,
    advance: Callable[[int], object],
) -> Auditor:
    from app.executor.fates import Fates
    from app.kafka.records import KafkaRecords

    timeless = replace(tasks, sink=_without_times(tasks.sink), dead_letters=_without_times(tasks.dead_letters))
    source, output = KafkaRecords(tasks.kafka, tasks.group), KafkaRecords(tasks.output_kafka, tasks.group)
    readers = Readers(source, output, kafka.topics, kafka.destinations)
    return Auditor(Fates(timeless), readers, scope.layout, scope.ends, times, read=advance)


def _without_times(topic: Destination) -> Destination:
    """Return the topic with any timestamp allowed: it may have accepted then what it would reject now."""
    return replace(topic, before=None, after=None)


def _view(
    group: str,
    left_out: Sequence[LeftOut],
    judged: Mapping[Partition, Range],
    verdicts: Sequence[Verdict],
    sample: float | None,
) -> View:
    records, by_text = sum(each.judged for each in verdicts), sum(each.known_by_text for each in verdicts)
    findings = [each for found in verdicts for each in found.findings]
    counts = counted(findings)
    not_judged = sum((each.not_judged for each in verdicts), Counter[Why]())
    for each in left_out:
        not_judged[each.why] += each.offsets or 0
    why_not = [
        _said_of(why, not_judged[why], left_out) for why in Why if not_judged[why] or why in {x.why for x in left_out}
    ]
    notes = [
        (why_not, f"not judged: {', '.join(why_not)}"),
        (
            by_text,
            f"{by_text} lines have neither a header nor their record's timestamp, so only their text was compared",
        ),
        (sample, f"a sample of {sample} % cannot find unexplained lines"),
        (len(findings) > SHOWN, f"the table shows the first {SHOWN}"),
    ]
    return View(
        columns=("WHAT", "TOPIC", "#PARTITION", "#OFFSET", "FOUND-AT", "DETAIL"),
        rows=[tuple(each.as_json().values()) for each in findings[:SHOWN]],
        value={
            "version": 1,
            "group": group,
            "records": records,
            "sample": sample,
            "known_by_text": by_text,
            **counts,
            "not_judged": {why.replace(" ", "_"): not_judged[why] for why in Why},
            "findings": [each.as_json() for each in findings],
            "left_out": [each.as_json() for each in left_out],
            "audited": [
                each.as_json() | {"begin": begin, "end": end}
                for each, found in sorted(judged.items())
                for begin, end in found.judged
                if begin < end
            ],
        },
        code=1 if findings else NOT_JUDGED if why_not else 0,
        footer="; ".join(
            [f"group {group}: {_said(records, counts, why_not)}", *(note for is_so, note in notes if is_so)]
        ),
    )


def _said(records: int, counts: Mapping[str, int], why_not: Sequence[str]) -> str:
    """Summarize the verdict."""
    wrong = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count)
    if not records:
        return wrong or ("nothing was judged" if why_not else "the range holds no records")
    return f"{records} records audited: {wrong or ('no fault found in these' if why_not else 'all correct')}"


def _said_of(why: Why, count: int, left_out: Sequence[LeftOut]) -> str:
    """Say how much was not judged for a reason, where (if known), and what to do."""
    places = [str(each.partition) for each in left_out if each.why is why]
    where = f" in {', '.join(places[:NAMED])}{' and others' if len(places) > NAMED else ''}" if places else ""
    return f"{count or 'an unknown number'} {why}{where}" + (f" ({CURES[why]})" if why in CURES else "")
