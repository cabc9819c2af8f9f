"""`winnow replay`: cleanses a time range of the source again, into another topic."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import wait
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click

from app import config
from app.cli.options import built, configuration, overrides, read, refuse_backward, reports_errors
from app.cli.tables import View, as_json, progress, show
from app.driver.clients import Clients
from app.driver.task_config import task_config
from app.errors import NotUsable, Unreachable
from app.model import NOBODY, Assignment, Guarantee, Partition, Plugin, Receipt, TaskConfig
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.history import milliseconds_of
from app.offsets.registry import open_store
from app.operate.answers import whole
from app.operate.bounded import DEAD_LETTERS, Part, group_of, parts, problem_of, refuse_own_topics
from app.operate.bounded import as_json as json_of_part
from app.operate.lag import offsets_of
from app.runtime import REAL
from app.topics import OwnTopics

AS_LONG_AS_IT_TAKES = 30 * 86_400.0
LOOK_SECONDS = 1.0


@click.command()
@configuration
@overrides
@click.option("--from", "begin", metavar="TIME", required=True, help="Start at the first record at or after this time.")
@click.option("--to", "end", metavar="TIME", required=True, help="Stop at the first record at or after this time.")
@click.option("--into", metavar="TOPIC", required=True, help="The topic for cleansed lines.")
@click.option("--dead-letters", metavar="TOPIC", help="The topic for rejected records; by default INTO.dlq.")
@click.option("--dry-run", is_flag=True, help="Show what would be read; change nothing.")
@as_json
@reports_errors
def replay(  # click's options
    *,
    file: Path | None,
    assignments: tuple[str, ...],
    begin: str,
    end: str,
    into: str,
    dead_letters: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """
    Cleanse a time range of the source into another topic.

    Writes exactly once, and does not touch the service's group. If a replay was stopped or killed, the same command
    resumes it. Exits with 1 if the replay could not finish.
    """
    times = built("--from", lambda: milliseconds_of(begin)), built("--to", lambda: milliseconds_of(end))
    refuse_backward("--to", *times)
    settings, rejects = read(file, assignments).config, dead_letters or DEAD_LETTERS.format(into)
    from app.start import clients

    kafka = clients(settings)
    found = offsets_of(settings, kafka)
    own = {settings.sink.topic, settings.dead_letters.topic, *(each.partition.topic for each in found)}
    made = OwnTopics(settings.dead_letters.topic, settings.placeholder)
    refuse_own_topics({"--into": into, "--dead-letters": rejects}, own, made)
    tasks = _tasks(settings, kafka, into, rejects, group_of(settings.group_id, into, *times))
    with closing(_positions(tasks)) as store:
        partitions = [each.partition for each in found]
        whole(partitions, {each.partition: each for each in found if each.watermarks is not None})
        begins, ends = (whole(partitions, kafka.topics.offsets_at(partitions, each)) for each in times)
        wanted = parts(found, store.load(partitions, stable=False), begins, ends)
        receipts = {} if dry_run else _carry_out(tasks, kafka, wanted, store)
    return show(_view(tasks, wanted, receipts, done=not dry_run), as_json=as_json)


def _tasks(settings: config.Config, kafka: Clients, into: str, rejects: str, group: str) -> TaskConfig:
    """Return the service's task configuration for another group and other topics, exactly once."""
    return replace(
        task_config(settings, kafka.destinations, NOBODY),
        group=group,
        sink=kafka.destinations.destination(into),
        dead_letters=kafka.destinations.destination(rejects),
        guarantee=Guarantee.EXACTLY_ONCE,
        offset_store=Plugin("kafka"),
        mirrors=(),
    )


def _positions(tasks: TaskConfig) -> OffsetStore:
    return open_store(Plugin("kafka"), StoreContext(tasks.group, tasks.output_kafka, placeholder=tasks.placeholder))


def _carry_out(
    tasks: TaskConfig, kafka: Clients, wanted: Sequence[Part], store: OffsetStore
) -> dict[Partition, Receipt]:
    """Run a task in this process until it reaches all ends; return its receipts."""
    from app.executor import task
    from app.executor.parse import make_parser
    from app.kafka.clients import TaskClients

    open_parts = [each for each in wanted if each.start < each.end]
    if not open_parts:
        return {}
    if kafka.placeholders is not None:
        kafka.placeholders.make_room([each.partition for each in open_parts])
    ranges = tuple(each.range for each in open_parts)
    assignment = Assignment(tasks, ranges, AS_LONG_AS_IT_TAKES, deadline=0)

    def work() -> list[Receipt]:
        with TaskClients(tasks, ranges=ranges) as clients:
            return task.run(assignment, clients, make_parser(tasks), AS_LONG_AS_IT_TAKES)

    working = REAL.background(work)
    with progress("replaying", sum(each.end - each.start for each in open_parts)) as advance:
        done = 0
        while not wait([working], LOOK_SECONDS).done:
            now = _done(open_parts, store)
            advance(now - done)
            done = now
    return {receipt.partition: receipt for receipt in working.result()}


def _done(open_parts: Sequence[Part], store: OffsetStore) -> int:
    """Return how many offsets are done, for the progress bar; 0 while Kafka does not answer."""
    try:
        positions = store.load([each.partition for each in open_parts], stable=False)
    except (Unreachable, NotUsable):
        return 0
    return sum(positions[each.partition].offset - each.start for each in open_parts if each.partition in positions)


def _view(tasks: TaskConfig, wanted: Sequence[Part], receipts: dict[Partition, Receipt], *, done: bool) -> View:
    problems = any(problem_of(receipt) for receipt in receipts.values())
    found = [json_of_part(each, receipts.get(each.partition)) for each in wanted]
    rows = [
        [
            *(each[key] for key in ("topic", "partition", "begin", "end", "position", "in", "out")),
            sum(each["dead_letters"].values()),
            *([each["problem"]] if problems else []),
        ]
        for each in found
    ]
    records, lines = sum(each["in"] for each in found), sum(each["out"] for each in found)
    left = sum(each["end"] - each["position"] for each in found)
    verdict = f"{records} records, {lines} lines" if done else f"{left} offsets would be read"
    columns = ("TOPIC", "#PARTITION", "#BEGIN", "#END", "#POSITION", "#IN", "#OUT", "#DEAD-LETTERS")
    topics = {"into": tasks.sink.topic, "dead_letters_into": tasks.dead_letters.topic, "group": tasks.group}
    return View(
        columns=(*columns, *(["PROBLEM"] if problems else [])),
        rows=rows,
        value={"version": 1, "done": done and not left, **topics, "partitions": found},
        code=1 if done and left else 0,
        footer=f"into {tasks.sink.topic}, rejects into {tasks.dead_letters.topic}: {verdict}",
    )
