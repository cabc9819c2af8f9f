"""`winnow dlq`: lists, shows, counts and replays dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import wraps

import click

from app.cli.groups import CommandGroup
from app.cli.layout import View
from app.cli.options import Period, clients, configured, ranged, reasons_of, shown
from app.cli.tables import progress
from app.config import Config
from app.errors import built
from app.model import TaskConfig
from app.operate.dead_letter_replay import Pace, Plan, Session, Tally, replaying
from app.operate.dead_letters import DeadLetterReader, Letter, Selection, Statistics, place_of
from app.times import time_of


def chosen(command: Callable[..., View]) -> Callable[..., View]:
    """Add the options that select dead letters; the command receives them as one `selection`."""

    @ranged
    @click.option("--reason", "reasons", multiple=True, help="Only those with this reason; repeatable.")
    @wraps(command)
    def wrapper(settings: Config, *, times: Period, reasons: tuple[str, ...], **options: object) -> View:
        return command(settings, selection=Selection(*times, reasons_of(settings, reasons)), **options)

    return wrapper


@click.group(cls=CommandGroup)
def dlq() -> None:
    """Inspect and replay dead letters. The service's consumer group is not touched."""


@dlq.command(epilog="Example: winnow dlq ls --reason houseid --limit 5")
@configured
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="How many to list.")
@shown
@chosen
def ls(settings: Config, *, selection: Selection, limit: int) -> View:
    """List the newest dead letters. Shows the place, reason and source record of each."""
    found = _dead_letters(settings).newest(selection, limit + 1)
    return _listed(settings.dead_letters.topic, found[-limit:], more=len(found) > limit)


def _listed(topic: str, letters: Sequence[Letter], *, more: bool) -> View:
    count = len(letters)
    footer = f"the last {count} in {topic}" if more else f"{count or 'no'} dead letters in {topic}"
    footer += f"; more: --limit {10 * count}" if more else ""
    footer += f"; in full: dlq show {letters[-1].place}" if letters else ""
    return View(
        columns=("PLACE", "TIME", "REASON", "?SOURCE", "?DETAIL"),
        rows=[(each.place, time_of(each.record.timestamp), each.reason, each.origin, each.detail) for each in letters],
        value={"version": 1, "topic": topic, "more": more, "dead_letters": [one.as_json() for one in letters]},
        footer=footer,
    )


@dlq.command(epilog="Example: winnow dlq stats --since 2026-11-23T06:00")
@configured
@shown
@chosen
def stats(settings: Config, *, selection: Selection) -> View:
    """Count the dead letters by reason. Reads all of them: use --since if there are millions."""
    return _counted(settings.dead_letters.topic, Statistics(_dead_letters(settings).chosen(selection)))


def _counted(topic: str, found: Statistics) -> View:
    first, last = (None if each is None else time_of(each) for each in (found.first, found.last))
    value = {"topic": topic, "total": found.total, "first": first, "last": last}
    return View(
        columns=("REASON", "#COUNT", "#PERCENT"),
        rows=found.rows(),
        value={"version": 1} | value | {"reasons": dict(found.reasons), "source_topics": dict(found.topics)},
        footer=f"{found.total} dead letters" + (f", from {first} to {last}" if first else ""),
    )


@dlq.command(epilog="Example: winnow dlq show 1@2384")
@click.argument("place", metavar="PARTITION@OFFSET")
@configured
@shown
def show(settings: Config, *, place: str) -> View:
    """Show one dead letter with its headers, key and value."""
    number, offset = built("PARTITION@OFFSET", lambda: place_of(place))
    topic = settings.dead_letters.topic
    if (letter := _dead_letters(settings).at(number, offset)) is None:
        click.echo(f"there is no dead letter at {topic}-{number}@{offset}", err=True)
        raise click.exceptions.Exit(1)
    return _shown(topic, letter)


def _shown(topic: str, letter: Letter) -> View:
    content = letter.with_content()
    for_people = content | {"timestamp": time_of(letter.record.timestamp)}
    rows = [(name, value) for name, value in for_people.items() if name != "headers"]
    rows += [(f"header {name}", value) for name, value in content["headers"]]
    return View(("WHAT", "?VALUE"), rows, {"version": 1, "topic": topic} | content)


@dlq.command(epilog="Example: winnow dlq replay --reason houseid --dry-run")
@configured
@click.option("--limit", type=click.IntRange(1), help="Replay at most this many.")
@click.option("--rate", type=click.IntRange(1), help="Replay at most this many per second.")
@click.option("--into", metavar="TOPIC", help="Write the lines to this topic instead of the sink; what fails stays.")
@click.option(
    "--attempts",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Move a dead letter to the parking topic after this many failed replays.",
)
@click.option("--dry-run", is_flag=True, help="Show the result without writing anything.")
@shown
@chosen
def replay(
    settings: Config,
    *,
    selection: Selection,
    limit: int | None,
    rate: int | None,
    into: str | None,
    attempts: int,
    dry_run: bool,
) -> View:
    """
    Cleanse dead letters again, with this configuration's parser.

    No line is written twice, even if a replay is stopped, killed or repeated. A dead letter that fails again goes back
    to the dead-letter topic with a count, unless --into is given. Replayed lines follow newer ones, so their order is
    not kept. Exits with 1 if a dead letter fails again.
    """
    from app.start import dead_letter_replays, fates, records

    kafka = clients(settings)
    tasks = replaying(settings, kafka, into)
    reader = records(tasks.output_kafka, tasks.group)
    with closing(dead_letter_replays(tasks)) as replays, fates(tasks) as cleanse:
        plan = Plan(selection, limit, None if into else attempts)
        session = Session(tasks, plan, cleanse, clients=kafka, kafka=replays, reader=reader)
        with progress("reading dead letters" if dry_run else "replaying dead letters", session.length) as advance:
            if dry_run:
                session.dry_run(advance)
            else:
                session.carry_out(Pace(rate), advance)
        session.count_hidden()
    return _view(tasks, session.replay.tally, done=not dry_run)


def _dead_letters(settings: Config) -> DeadLetterReader:
    from app.start import records

    reader = records(settings.output_kafka, settings.group_id)
    return DeadLetterReader(settings.dead_letters.topic, clients(settings).destinations, reader)


def _view(work: TaskConfig, tally: Tally, *, done: bool) -> View:
    topics = {"topic": work.dead_letters.topic, "into": work.sink.topic}
    footer = f"{tally.replayed} dead letters {'replayed' if done else 'would be replayed'} into {work.sink.topic}: "
    footer += f"{tally.cleansed} cleansed, {tally.failed} fail again, {tally.parked} of them go to the parking topic"
    others = {
        "dropped by a filter": tally.filtered,
        "handled before": tally.handled,
        "not chosen": tally.not_chosen,
        "not replayable": tally.not_replayable,
        "offsets wait behind an open transaction in the dead letters": tally.hidden,
    }
    footer += "".join(f"; {count} {what}" for what, count in others.items() if count)
    return View(
        columns=("REASON", "#THEN", "#NOW"),
        rows=tally.rows(),
        value={"version": 1, "done": done, **topics, **tally.as_json()},
        code=1 if tally.failed else 0,
        footer=footer,
    )
