"""`winnow pause` and `winnow resume`."""

from __future__ import annotations

import socket
import time

import click

from app.cli.layout import View
from app.cli.options import clients, configured, shown
from app.config import Config
from app.driver.pause import seconds_to_follow
from app.model import Pause


@click.command(epilog="Example: winnow pause")
@configured
@shown
def pause(settings: Config) -> View:
    """
    Pause the service.

    It stops reading records, keeps its offsets and stays up. A running service commits its work and pauses within
    round.interval, with at-least-once within three of them. The pause survives a restart.
    """
    pauses = clients(settings).pauses
    if (known := pauses.read()) is None:
        known = Pause(round(time.time() * 1000), socket.gethostname())
        pauses.set(known)
    return _view(settings, known)


@click.command(epilog="Example: winnow resume")
@configured
@shown
def resume(settings: Config) -> View:
    """Resume the service from its offsets, within round.interval."""
    clients(settings).pauses.clear()
    return _view(settings, None)


def _view(settings: Config, known: Pause | None) -> View:
    seconds = seconds_to_follow(settings, known)
    document = {"version": 1, "group": settings.group_id, "paused": known._asdict() if known else None}
    footer = f"group {settings.group_id}: {known or 'not paused'}; a running service follows within {seconds:g} s"
    return View((), [], document, footer=footer)
