"""`winnow pause` and `winnow resume`."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import click

from app import config
from app.cli.options import configuration, overrides, read, reports_errors
from app.cli.tables import View, as_json, show
from app.driver.round import CHECKS
from app.model import Guarantee, Pause


@click.command()
@configuration
@overrides
@as_json
@reports_errors
def pause(file: Path | None, assignments: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001  # click's flag
    """
    Pause the service.

    It stops reading records, keeps its offsets and stays up. A running service commits its work and pauses within
    round.interval, with at-least-once within three of them. The pause survives a restart.
    """
    settings = read(file, assignments).config
    from app.start import clients

    pauses = clients(settings).pauses
    known = pauses.read()
    if known is None:
        known = Pause(round(time.time() * 1000), socket.gethostname())
        pauses.set(known)
    return show(_view(settings, known), as_json=as_json)


@click.command()
@configuration
@overrides
@as_json
@reports_errors
def resume(file: Path | None, assignments: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001  # click's flag
    """Resume the service from its offsets, within round.interval."""
    settings = read(file, assignments).config
    from app.start import clients

    clients(settings).pauses.clear()
    return show(_view(settings, None), as_json=as_json)


def _view(settings: config.Config, known: Pause | None) -> View:
    value = {"since": known.since, "by": known.by} if known else None
    # At least once, a round does not end early.
    ends_late = known is not None and settings.delivery_guarantee is Guarantee.AT_LEAST_ONCE
    seconds = settings.round_interval * (CHECKS[Guarantee.AT_LEAST_ONCE] if ends_late else 1)
    within = f"a running service follows within {seconds:g} s"
    return View(
        (),
        [],
        {"version": 1, "group": settings.group_id, "paused": value},
        footer=(f"group {settings.group_id}: {known or 'not paused'}; {within}"),
    )
