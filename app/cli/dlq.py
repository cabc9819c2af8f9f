"""`winnow dlq`: lists, shows and counts dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TypeVar

import click

from app import config
from app.cli.options import built, configuration, overrides, read, refuse_backward, reports_errors
from app.cli.tables import View, as_json, show
from app.model import Partition, Watermarks, partitions_of
from app.offsets.history import milliseconds_of, time_of
from app.operate.answers import whole
from app.operate.letters import Choice, Letter, Statistics, first_offsets, last_written, newest, place_of
from app.records import Record

T = TypeVar("T")


def chosen(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options that select dead letters; the command receives them as one `choice`."""

    @click.option("--since", metavar="TIME", help="Only records at or after this time; UTC unless it has a zone.")
    @click.option("--until", metavar="TIME", help="Only records before this time.")
    @click.option("--reason", "reasons", multiple=True, help="Only those with this reason; repeatable.")
    @wraps(command)
    def wrapper(*, since: str | None, until: str | None, reasons: tuple[str, ...], **options: object) -> T:
        return command(choice=_choice_of(since, until, reasons), **options)

    return wrapper


@click.group()
def dlq() -> None:
    """Inspect and replay dead letters. The service's consumer group is not touched."""


@dlq.command()
@configuration
@overrides
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many to list.")
@as_json
@reports_errors
@chosen
def ls(  # click's options
    *,
    file: Path | None,
    assignments: tuple[str, ...],
    choice: Choice,
    limit: int,
    as_json: bool,
) -> int:
    """List the newest dead letters. Shows the place, reason and source record of each."""
    settings = read(file, assignments).config
    letters = _last_written(settings, limit) if choice.takes_all else newest(_letters(settings, choice), limit)
    view = View(
        columns=("PLACE", "TIME", "REASON", "SOURCE", "DETAIL"),
        rows=[(each.place, time_of(each.record.timestamp), each.reason, each.origin, each.detail) for each in letters],
        value={"version": 1, "topic": settings.dead_letters.topic, "dead_letters": [one.as_json() for one in letters]},
    )
    return show(view, as_json=as_json)


@dlq.command()
@configuration
@overrides
@as_json
@reports_errors
@chosen
def stats(  # click's options
    *,
    file: Path | None,
    assignments: tuple[str, ...],
    choice: Choice,
    as_json: bool,
) -> int:
    """Count the dead letters by reason. Reads all of them: use --since if there are millions."""
    settings = read(file, assignments).config
    found = Statistics.of(_letters(settings, choice))
    first, last = (None if each is None else time_of(each) for each in (found.first, found.last))
    value = {"topic": settings.dead_letters.topic, "total": found.total, "first": first, "last": last}
    view = View(
        columns=("REASON", "#COUNT", "#PERCENT"),
        rows=found.rows(),
        value={"version": 1} | value | {"reasons": dict(found.reasons), "source_topics": dict(found.topics)},
        footer=f"{found.total} dead letters" + (f", from {first} to {last}" if found.total else ""),
    )
    return show(view, as_json=as_json)


@dlq.command("show")
@click.argument("place", metavar="PARTITION@OFFSET")
@configuration
@overrides
@as_json
@reports_errors
def show_letter(place: str, file: Path | None, assignments: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001  # click's flag
    """Show one dead letter with its headers, key and value."""
    number, offset = built("PARTITION@OFFSET", lambda: place_of(place))
    settings = read(file, assignments).config
    partition = Partition(settings.dead_letters.topic, number)
    marks = watermarks_of(settings, partition).get(partition)
    there = marks is not None and marks.log_start <= offset < marks.last_stable
    records = _between(settings, {partition: offset}, {partition: offset + 1}) if there else iter(())
    record = next((each for each in records if each.offset == offset), None)
    if record is None:
        click.echo(f"there is no dead letter at {partition}@{offset}", err=True)
        return 1
    content = Letter.of(record).with_content()
    rows = [(name, value) for name, value in content.items() if name != "headers"]
    rows += [(f"header {name}", value) for name, value in content["headers"]]
    return show(View(("WHAT", "VALUE"), rows, {"version": 1, "topic": partition.topic} | content), as_json=as_json)


def _choice_of(since: str | None, until: str | None, reasons: tuple[str, ...]) -> Choice:
    first = None if since is None else built("--since", lambda: milliseconds_of(since))
    end = None if until is None else built("--until", lambda: milliseconds_of(until))
    refuse_backward("--until", first, end)
    return Choice(first, end, reasons)


def _last_written(settings: config.Config, limit: int) -> list[Letter]:
    watermarks = watermarks_of(settings)
    ends = {partition: marks.last_stable for partition, marks in watermarks.items()}
    return last_written(watermarks, limit, lambda starts: map(Letter.of, _between(settings, starts, ends)))


def _letters(settings: config.Config, choice: Choice) -> Iterator[Letter]:
    """Yield the selected dead letters."""
    watermarks = watermarks_of(settings)
    ends = {partition: marks.last_stable for partition, marks in watermarks.items()}
    return choice.of(_between(settings, starts_of(settings, watermarks, choice), ends))


def starts_of(
    settings: config.Config, watermarks: Mapping[Partition, Watermarks], choice: Choice
) -> dict[Partition, int]:
    """Return where to start reading each partition so that no selected dead letter is missed."""
    from app.start import clients

    since = choice.since
    times = None if since is None else clients(settings).destinations.offsets_at(watermarks, since)
    return first_offsets(watermarks, times, None)


def watermarks_of(settings: config.Config, only: Partition | None = None) -> Mapping[Partition, Watermarks]:
    """
    Return the watermarks of all dead-letter partitions, or of only one.

    Raises:
        Unreachable: a partition does not answer.
    """
    from app.start import clients

    kafka, topic = clients(settings).destinations, settings.dead_letters.topic
    known = kafka.source_topics([topic], None, ())[topic]
    partitions = [each for each in partitions_of([known]) if only in (None, each)]
    return whole(partitions, kafka.watermarks(partitions))


def _between(settings: config.Config, starts: dict[Partition, int], ends: dict[Partition, int]) -> Iterator[Record]:
    from app.kafka.records import KafkaRecords

    return chain.from_iterable(KafkaRecords(settings.output_kafka, settings.group_id).batches(starts, ends))
