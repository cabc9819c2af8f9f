"""`winnow transactions`: lists open transactions, and aborts those of a dead service."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from app.cli.groups import CommandGroup
from app.cli.layout import View
from app.cli.options import clients, configured, shown
from app.config import Config
from app.facts import OpenTransaction
from app.model import transactional_id
from app.operate import running
from app.times import time_of


@click.group(cls=CommandGroup)
def transactions() -> None:
    """List the group's open transactions, or abort them. Those of its replays are not among them."""


@transactions.command(epilog="Example: winnow transactions ls")
@configured
@shown
def ls(settings: Config) -> View:
    """List the open transactions and their age. A running service has one for each partition with records."""
    from app.start import transaction_log

    return _view(settings.group_id, running.open_transactions(settings, transaction_log(settings).open_transactions))


@transactions.command(epilog="Example: winnow transactions abort --dry-run")
@configured
@click.option("--dry-run", is_flag=True, help="Show what would be aborted; change nothing.")
@shown
def abort(settings: Config, *, dry_run: bool) -> View:
    """
    Abort the open transactions of a dead service.

    Readers of the sink then need not wait for their timeout. Changes nothing if the service is running (exit code 3).
    """
    from app.start import transaction_log

    found = running.open_transactions(settings, transaction_log(settings).open_transactions)
    if found and not dry_run:
        running.abort(found, settings, clients(settings))
    return _view(settings.group_id, found, aborted=not dry_run)


def _view(group: str, found: Sequence[OpenTransaction], *, aborted: bool | None = None) -> View:
    now = time.time()
    aged = [(each, max(0.0, round(now - each.began / 1000, 3))) for each in found]
    value = [
        {"transactional_id": transactional_id(group, each.source), **each._asdict(), "age_seconds": age}
        | {"source": each.source.as_json()}
        for each, age in aged
    ]
    outcome = {} if aborted is None else {"done": aborted and bool(found)}
    return View(
        columns=("TOPIC", "#PARTITION", "STATE", "#AGE-SECONDS", "SINCE", "#PRODUCER-ID", "#EPOCH"),
        rows=[(*each.source, each.state, age, time_of(each.began), each.producer, each.epoch) for each, age in aged],
        value={"version": 1, "group": group, **outcome, "transactions": value},
        footer=f"group {group}: {len(found)} open transactions" + (", aborted" if found and aborted else ""),
        spare=("EPOCH", "PRODUCER-ID", "SINCE"),
    )
