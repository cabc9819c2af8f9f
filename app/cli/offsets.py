"""`winnow offsets migrate` and `winnow offsets history`: moves and restores the group's offsets."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from app import config
from app.cli.options import built, configuration, overrides, read, reports_errors
from app.driver.clients import Clients
from app.errors import ConfigError
from app.model import Plugin, Topic, partitions_of
from app.offsets import history as earlier
from app.offsets import migrate as migration
from app.offsets import registry as stores
from app.offsets.contract import OffsetHistory, OffsetStore, StoreContext, is_local
from app.operate.running import StoppedService

SOURCE = "source"
"""Names the group's offsets on the source's cluster if the sink has a cluster of its own."""


@click.group()
def offsets() -> None:
    """Show or change the group's offsets. Stop the service before you change them."""


@offsets.command()
@configuration
@overrides
@click.option("--from", "source", required=True, metavar="STORE", help="The store to move from; see --to.")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="STORE",
    help="The store to move to: the name of a configured one (`offsets.store`, `offsets.mirrors`), `kafka`, or a store "
    "in the configuration's form, such as '{name: redis, url: …}'. With sink.kafka, `kafka` is the group on the sink's "
    "cluster and `source` the one on the source's.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be moved; change nothing.")
@click.option("--force", is_flag=True, help="Move an offset even if the target holds a larger one.")
@reports_errors
def migrate(
    *,
    file: Path | None,
    assignments: tuple[str, ...],
    source: str,
    target: str,
    dry_run: bool,
    force: bool,
) -> int:
    """
    Move the group's offsets from one store to another.

    Reports each partition. Exits with 1 if there is nothing to move, or if an offset would go back (unless --force).
    """
    settings = read(file, assignments).config
    with (
        contextlib.closing(_open("--from", source, settings)) as origin,
        contextlib.closing(_open("--to", target, settings)) as destination,
    ):
        kafka, topics = _sources(settings)
        partitions = partitions_of(topics.values())
        if dry_run:
            moves = list(migration.moves(origin, destination, partitions))
            refused = migration.foretell(moves, force=force, say=click.echo)
        else:
            with StoppedService(settings, kafka).changing(destination, partitions, origin) as written:
                moves = list(migration.moves(origin, destination, partitions))
                refused = migration.carry_out(moves, destination, written, force=force, say=click.echo)
        migration.tell_others(moves, partitions, _choice(source)["name"], click.echo)
        return 1 if refused or not moves else 0


@offsets.command()
@configuration
@overrides
@click.option(
    "--store", metavar="STORE", help="The store to read; by default the first configured one that keeps a history."
)
@click.option(
    "--most", type=click.IntRange(1), default=20, show_default=True, help="How many entries to list per topic."
)
@click.option("--restore", metavar="TIME", help="Set the group's offsets back to this time, such as a listed one.")
@click.option("--dry-run", is_flag=True, help="Show what --restore would do; change nothing.")
@reports_errors
def history(
    *,
    file: Path | None,
    assignments: tuple[str, ...],
    store: str | None,
    most: int,
    restore: str | None,
    dry_run: bool,
) -> int:
    """List the group's earlier offsets, or restore them. Only some stores, such as hbase, keep a history."""
    settings = read(file, assignments).config
    with contextlib.closing(_with_history(store, settings)) as past:
        assert isinstance(past, OffsetHistory)
        kafka, topics = _sources(settings)
        if restore is None:
            for topic in sorted(topics):
                click.echo(topic)
                for entry in past.history(topic, most):
                    click.echo(f"  {earlier.written(entry)}")
            return 0
        moment = built("--restore", lambda: earlier.milliseconds_of(restore))
        with contextlib.closing(_open("offsets.store", settings.offsets.store.name, settings)) as target:
            moves = list(earlier.moves_back(past, target, topics, moment))
            migration.tell_others(moves, partitions_of(topics.values()), "the history of that time", click.echo)
            if dry_run:
                return migration.foretell(moves, force=True, say=click.echo)
            with StoppedService(settings, kafka).changing(target, [each.partition for each in moves]) as written:
                return migration.carry_out(moves, target, written, force=True, say=click.echo)


def _with_history(named: str | None, settings: config.Config) -> OffsetStore:
    """Return the named store, or the first configured one that keeps a history."""
    configured = [each.name for each in (settings.offsets.store, *settings.offsets.mirrors)]
    for name in [named] if named else configured:
        opened = _open("--store", name, settings)
        if isinstance(opened, OffsetHistory):
            return opened
        opened.close()
    said = f"{named} keeps no history" if named else f"no history is kept in {' or '.join(configured)}"
    raise ConfigError((f"--store: {said}: hbase does, as the store or as a mirror",))


def _open(option: str, text: str, settings: config.Config) -> OffsetStore:
    """Open a store given by its name or in the configuration's form."""
    choice = _choice(text)
    name, options = str(choice.pop("name", "")), choice
    known = (settings.offsets.store, *settings.offsets.mirrors)
    plugin = next((each.plugin for each in known if each.name == name and not options), Plugin(name, options))
    context = StoreContext(settings.group_id, settings.output_kafka, placeholder=settings.placeholder)
    if name == SOURCE and settings.sink.kafka:
        plugin, context = Plugin("kafka"), StoreContext(settings.group_id, settings.kafka)
    opened = built(option, lambda: stores.open_store(plugin, context))
    if is_local(opened):
        raise ConfigError((f"{option}: {name} keeps nothing between runs",))
    return opened


def _choice(text: str) -> dict[str, Any]:
    try:
        choice = yaml.safe_load(text)
    except yaml.YAMLError:
        choice = text
    return choice if isinstance(choice, dict) else {"name": text}


def _sources(settings: config.Config) -> tuple[Clients, Mapping[str, Topic]]:
    """Return the driver's clients and the current source topics."""
    from app.start import clients

    kafka, source = clients(settings), settings.source
    return kafka, kafka.topics.source_topics(source.topics, source.topics_pattern, ())
