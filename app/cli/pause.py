"""`winnow pause` and `winnow resume`."""

from __future__ import annotations

import socket
import time

import click

from app.cli.layout import View
from app.cli.options import clients, configured, shown, status_page
from app.config import Config
from app.driver.pause import seconds_to_follow
from app.model import Pause
from app.operate.following import Follower

no_wait = click.option("--no-wait", is_flag=True, help="Do not wait until a running service has followed.")


@click.command(epilog="Example: winnow pause")
@configured
@no_wait
@status_page
@shown
def pause(settings: Config, *, no_wait: bool, url: str) -> View:
    """
    Pause the service, and wait until it is paused.

    It stops reading records, keeps its offsets and stays up. A running service commits its work and pauses within
    round.interval, with at-least-once within three of them. The pause survives a restart. Exits with 1 if a running
    service does not pause in time.
    """
    kafka = clients(settings)
    service = None if no_wait else Follower.visible(settings, kafka, url)
    works = service is not None and service.works
    if (known := kafka.pauses.read()) is None:
        known = Pause(round(time.time() * 1000), socket.gethostname())
        kafka.pauses.set(known)
    seconds = seconds_to_follow(settings, known)
    if service is None:
        return _view(settings, known, f"a running service follows within {seconds:g} s")
    if not works:
        return _view(settings, known, "no service works for the group, and one that starts stays paused")
    return _followed(settings, known, service.paused(seconds))


@click.command(epilog="Example: winnow resume")
@configured
@no_wait
@status_page
@shown
def resume(settings: Config, *, no_wait: bool, url: str) -> View:
    """
    Resume the service from its offsets, and wait until it works.

    It follows within round.interval. Exits with 1 if no service works in time.
    """
    kafka = clients(settings)
    service = None if no_wait else Follower.visible(settings, kafka, url)
    known = kafka.pauses.read()
    kafka.pauses.clear()
    seconds = seconds_to_follow(settings, None)
    if service is None:
        return _view(settings, None, f"a running service follows within {seconds:g} s")
    if known is None:
        return _view(settings, None, "it was not paused")
    if service.has_gone:
        silent = f"the last run was on this machine, and nothing answers at {service.url}"
        return _view(settings, None, f"{silent}: give --status if it listens elsewhere")
    return _followed(settings, None, service.resumed(seconds))


def _followed(settings: Config, known: Pause | None, seconds: float) -> View:
    return _view(settings, known, f"the service followed after {seconds:.1f} s", round(seconds, 3))


def _view(settings: Config, known: Pause | None, said: str, seconds: float | None = None) -> View:
    paused = known._asdict() if known else None
    value = {"version": 1, "group": settings.group_id, "paused": paused, "followed_seconds": seconds}
    return View((), [], value, footer=f"group {settings.group_id}: {known or 'not paused'}; {said}")
