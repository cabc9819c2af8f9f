"""`winnow dlq replay`: cleanses dead letters again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click

from app import config
from app.cli.dlq import chosen, starts_of, watermarks_of
from app.cli.options import configuration, overrides, read, reports_errors
from app.cli.tables import View, as_json, progress, show
from app.driver.task_config import task_config
from app.model import NOBODY, Partition, TaskConfig, Watermarks
from app.operate.bounded import refuse_own_topics
from app.operate.ledger import Ledger
from app.operate.letters import Choice
from app.operate.replays import GROUP, STEP, Pace, Plan, Replay, Span, steps
from app.records import Record
from app.topics import LEDGER, PARKING, OwnTopics


@click.command("replay")
@configuration
@overrides
@click.option("--limit", type=click.IntRange(1), help="Replay at most this many.")
@click.option("--rate", type=click.IntRange(1), help="Replay at most this many per second.")
@click.option("--into", metavar="TOPIC", help="Write the lines to this topic instead of the sink.")
@click.option(
    "--attempts",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Move a dead letter to the parking topic after this many failed replays.",
)
@click.option("--dry-run", is_flag=True, help="Show the result without writing anything.")
@as_json
@reports_errors
@chosen
def replay_letters(  # click's options
    *,
    file: Path | None,
    assignments: tuple[str, ...],
    choice: Choice,
    limit: int | None,
    rate: int | None,
    into: str | None,
    attempts: int,
    dry_run: bool,
    as_json: bool,
) -> int:
    """
    Cleanse dead letters again, with this configuration's parser.

    No line is written twice, even if a replay is stopped, killed or repeated. A dead letter that fails again goes back
    to the dead-letter topic with a count. Replayed lines follow newer ones, so their order is not kept. Exits with 1 if
    a dead letter fails again.
    """
    settings = read(file, assignments).config
    from app.start import fates

    work = _work(settings, into)
    dead_letters = work.dead_letters
    ledger = Ledger(LEDGER.format(dead_letters.topic), work.sink.topic)
    parking = PARKING.format(dead_letters.topic), dead_letters.partitions
    replay = Replay(Plan(choice, limit, attempts, parking), ledger, fates(work))
    watermarks = watermarks_of(settings)
    begins = starts_of(settings, watermarks, choice)
    if dry_run:
        _foresee(work, replay, begins, watermarks)
    else:
        _carry_out(work, replay, begins, watermarks, Pace(rate))
    return show(_view(work, replay, done=not dry_run), as_json=as_json)


def _work(settings: config.Config, into: str | None) -> TaskConfig:
    """Return the task configuration with the replays' group and the target topic."""
    from app.start import clients

    service = clients(settings)
    kafka, source = service.destinations, settings.source
    tasks = task_config(settings, kafka, NOBODY)
    if into is not None:
        sources = {} if settings.sink.kafka else service.topics.source_topics(source.topics, source.topics_pattern, ())
        own = {settings.dead_letters.topic, *sources}
        refuse_own_topics({"--into": into}, own, OwnTopics(settings.dead_letters.topic, settings.placeholder))
    sink = kafka.destination(into) if into else tasks.sink
    return replace(tasks, group=GROUP.format(tasks.group), sink=sink)


def _foresee(
    work: TaskConfig,
    replay: Replay,
    begins: Mapping[Partition, int],
    watermarks: Mapping[Partition, Watermarks],
) -> None:
    from app.kafka.replays import KafkaReplays

    with closing(KafkaReplays(work)) as kafka:
        positions = kafka.positions(watermarks)
    _read_ledger(work, replay.ledger)
    into = work.sink.topic
    spans = [Span.of(into, positions.get(each), (each, begins[each], marks)) for each, marks in watermarks.items()]
    with progress("reading dead letters", sum(each.length for each in spans)) as advance:
        for span in spans:
            for records in _batches(work, span):
                replay.foresee(records)
                advance(len(records))
                if replay.enough:
                    return


def _carry_out(
    work: TaskConfig,
    replay: Replay,
    begins: Mapping[Partition, int],
    watermarks: Mapping[Partition, Watermarks],
    pace: Pace,
) -> None:
    from app.kafka.replays import KafkaReplays

    others = [*watermarks, *_make_room(work)]
    with (
        closing(KafkaReplays(work)) as kafka,
        closing(kafka.open(watermarks, others)) as opened,
        progress("replaying dead letters", sum(watermarks[each].last_stable - begins[each] for each in begins)) as done,
    ):
        _read_ledger(work, replay.ledger)  # only now: the fence has ended all other writers
        for writer, committed in opened.writers:
            partition = writer.partition
            span = Span.of(work.sink.topic, committed, (partition, begins[partition], watermarks[partition]))
            done(span.begin - begins[partition])
            if span.length and not replay.enough:
                for replayed, read in replay.run(span, steps(_batches(work, span), pace.step(STEP)), writer):
                    done(read)
                    pace.wait(replayed)


def _make_room(work: TaskConfig) -> Iterator[Partition]:
    """Create the ledger and parking topics if they are missing; yield their partitions."""
    from app.kafka.admin import AdminConnection
    from app.kafka.companions import KafkaCompanions

    companions, topic = KafkaCompanions(AdminConnection(work.output_kafka)), work.dead_letters.topic
    for name, partitions, settings in (
        (LEDGER.format(topic), 1, {"cleanup.policy": "compact"}),
        (PARKING.format(topic), work.dead_letters.partitions, {"retention.ms": "-1"}),
    ):
        companions.create(name, partitions, settings)
        yield from (Partition(name, number) for number in range(companions.partitions_of(name)))


def _read_ledger(work: TaskConfig, ledger: Ledger) -> None:
    from app.kafka.admin import AdminConnection
    from app.kafka.companions import KafkaCompanions
    from app.kafka.records import KafkaRecords
    from app.kafka.topics import KafkaTopics

    connection = AdminConnection(work.output_kafka)
    if KafkaCompanions(connection).partitions_of(ledger.place.topic):
        marks = KafkaTopics(connection).watermarks([ledger.place])[ledger.place]
        records = KafkaRecords(work.output_kafka, work.group)
        for batch in records.batches({ledger.place: marks.log_start}, {ledger.place: marks.last_stable}):
            for record in batch:
                ledger.read(record)


def _batches(work: TaskConfig, span: Span) -> Iterator[list[Record]]:
    from app.kafka.records import KafkaRecords

    return KafkaRecords(work.output_kafka, work.group).batches({span.partition: span.begin}, {span.partition: span.end})


def _view(work: TaskConfig, replay: Replay, *, done: bool) -> View:
    tally = replay.tally
    topics = {"topic": work.dead_letters.topic, "into": work.sink.topic}
    footer = f"{tally.replayed} dead letters {'replayed' if done else 'would be replayed'} into {work.sink.topic}: "
    footer += f"{tally.cleansed} cleansed, {tally.failed} fail again, {tally.parked} of them go to the parking topic"
    others = {
        "handled before": tally.handled,
        "not chosen": tally.not_chosen,
        "not replayable": tally.not_replayable,
    }
    footer += "".join(f"; {count} {what}" for what, count in others.items() if count)
    return View(
        columns=("REASON", "#THEN", "#NOW"),
        rows=tally.rows(),
        value={"version": 1, "done": done, **topics, **tally.as_json()},
        code=1 if tally.failed else 0,
        footer=footer,
    )
