"""The report of `winnow check --connect`: whether the service could run, and where it would start. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.config import Config
from app.cures import RESUME
from app.driver.clients import Clients
from app.driver.diagnostics import Diagnostic, Severity
from app.driver.discover import Discovery
from app.driver.preflight import Preflight
from app.errors import Blocked, NotUsable, WinnowError
from app.model import Destination
from app.offsets.mirrors import Mirrors

Say = Callable[[str, str | WinnowError], object]
"""Takes a state (`ok`, `to do`, `paused`, `warns`, `refuses`, `waits` or `blocked`) and a sentence or an error."""


def connected(config: Config, clients: Clients, say: Say) -> int:
    """
    Query Kafka once. Return 0 if the service could run, 1 if some partitions cannot, 3 if it would refuse to run.

    Raises:
        Unreachable: Kafka is not responding.
    """
    try:
        return _connected(config, clients, say)
    except NotUsable as error:
        say("refuses", error)
        return error.exit_code


def _connected(config: Config, clients: Clients, say: Say) -> int:
    preflight = Preflight(config, clients)
    if _refuses(preflight.rights(), say):
        return NotUsable.exit_code
    if preflight.release:
        say("ok", f"the brokers support the API of Kafka {preflight.release}")
    for each in (clients.destinations.destination(each.topic) for each in (config.sink, config.dead_letters)):
        say("ok", f"{each.topic}: {each.partitions} partitions, {_taken(each)}")
    workload = Discovery(config, replace(clients, mirrors=Mirrors())).discover()
    troubles = workload.troubles()
    for partition, offset_range in sorted(workload.ranges.items()):
        if partition not in troubles:
            say("ok", f"{partition}: starts at {offset_range.start}, {workload.lag(partition)} offsets behind")
    if (placeholders := clients.placeholders_for(clients.offsets)) is not None:
        for name, partitions in placeholders.lacking(workload.ranges).items():
            say("to do", f"{name}: Winnow will create {partitions} partitions on the sink's cluster, for offsets only")
    if (pause := clients.pauses.read()) is not None:
        say("paused", f"{pause}; to resume, run {RESUME}")
    refused = _refuses(preflight.settings(), say)
    for error in troubles.values():
        say("blocked" if isinstance(error, Blocked) else "waits", error)
    return NotUsable.exit_code if refused else 1 if troubles else 0


def _refuses(diagnostics: Sequence[Diagnostic], say: Say) -> bool:
    """Say what was found; return whether the service would refuse to run."""
    for each in diagnostics:
        say(each.severity.value, each.error)
    return any(each.severity is Severity.REFUSES for each in diagnostics)


def _taken(topic: Destination) -> str:
    limits = [f"{limit.setting} {limit.milliseconds}" for limit in (topic.before, topic.after) if limit]
    keys = ["only with a key"] if topic.compacted else []
    return ", ".join([f"records up to {topic.max_bytes} bytes", *keys, *limits])
