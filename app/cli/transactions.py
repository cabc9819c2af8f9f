"""`winnow transactions`: lists open transactions, and aborts those of a dead service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app import config
from app.cli.options import configuration, overrides, read, reports_errors
from app.cli.tables import View, as_json, show
from app.model import Partition, transactional_id
from app.offsets.history import time_of
from app.operate.running import StoppedService

if TYPE_CHECKING:  # `winnow parse` works without Kafka's client
    from app.kafka.transaction_log import OpenTransaction

# Brokers abort transactions at their timeout, so an open one began less than two timeouts ago.
TIMEOUTS = 2


@click.group()
def transactions() -> None:
    """List the group's open transactions, or abort them. Only those of the group's own transactional ids count."""


@transactions.command()
@configuration
@overrides
@as_json
@reports_errors
def ls(file: Path | None, assignments: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001  # click's flag
    """List the open transactions and their age. A running service has one for each partition with records."""
    settings = read(file, assignments).config
    return show(_view(settings, _open(settings)), as_json=as_json)


@transactions.command()
@configuration
@overrides
@click.option("--dry-run", is_flag=True, help="Show what would be aborted; change nothing.")
@as_json
@reports_errors
def abort(file: Path | None, assignments: tuple[str, ...], dry_run: bool, as_json: bool) -> int:  # noqa: FBT001  # click's flags
    """
    Abort the open transactions of a dead service.

    Readers of the sink then need not wait for their timeout. Changes nothing if the service is running (exit code 3).
    """
    settings = read(file, assignments).config
    found = _open(settings)
    if found and not dry_run:
        _abort(settings, [each.source for each in found])
    return show(_view(settings, found, aborted=not dry_run), as_json=as_json)


def _open(settings: config.Config) -> list[OpenTransaction]:
    from app.kafka.transaction_log import KafkaTransactionLog

    since = time.time() - TIMEOUTS * settings.transaction_timeout
    return KafkaTransactionLog(settings.output_kafka, settings.group_id).open_transactions(round(since * 1000))


def _abort(settings: config.Config, sources: list[Partition]) -> None:
    from app.start import clients

    service = StoppedService(settings, clients(settings))
    service.refuse_running()
    service.fence(sources)


def _view(settings: config.Config, found: list[OpenTransaction], *, aborted: bool | None = None) -> View:
    now = time.time()
    ages = [max(0.0, round(now - each.began / 1000, 3)) for each in found]
    rows = [
        (*each.source, each.state, age, time_of(each.began), each.producer, each.epoch)
        for each, age in zip(found, ages, strict=True)
    ]
    value = [
        {"transactional_id": transactional_id(settings.group_id, each.source), **each._asdict(), "age_seconds": age}
        | {"source": each.source.as_json()}
        for each, age in zip(found, ages, strict=True)
    ]
    outcome = {} if aborted is None else {"done": aborted and bool(found)}
    return View(
        columns=("TOPIC", "#PARTITION", "STATE", "#AGE-SECONDS", "SINCE", "#PRODUCER-ID", "#EPOCH"),
        rows=rows,
        value={"version": 1, "group": settings.group_id, **outcome, "transactions": value},
        footer=f"group {settings.group_id}: {len(found)} open transactions"
        + (", aborted" if found and aborted else ""),
    )
