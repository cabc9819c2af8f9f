"""`winnow filters`: shows what each filter has dropped."""

from __future__ import annotations

import click

from app.cli.layout import View
from app.cli.options import clients, configured, shown
from app.config import Config
from app.model import FilterRule
from app.operate.lag import counts_of, offsets_of


@click.command(epilog="Example: winnow filters")
@configured
@shown
def filters(settings: Config) -> View:
    """
    Show how many records each filter has dropped.

    The tasks commit these counts with the group's offsets, so they include earlier runs of the service.
    """
    counts = counts_of(offsets_of(settings, clients(settings)))
    found = {each.name: each for each in settings.filters}
    dropped = {name: counts.filtered.get(name, 0) for name in [*found, *counts.filtered]}
    value = [_as_json(name, found.get(name), count, counts.records) for name, count in dropped.items()]
    return View(
        columns=("FILTER", "#DROPPED", "#PERCENT", "#LIMIT", "?RULE"),
        rows=[tuple(each.values()) for each in value],
        value={"version": 1, "group": settings.group_id, "records": counts.records, "filters": value},
        footer=f"group {settings.group_id}: filters dropped {counts.filtered_total} of {counts.records} records",
    )


def _as_json(name: str, rule: FilterRule | None, dropped: int, records: int) -> dict[str, object]:
    """Return a filter's counts; one that is no longer in the configuration has no rule."""
    return {
        "filter": name,
        "dropped": dropped,
        "percent": 100 * dropped / records if records else None,
        "limit": None if rule is None or rule.limit is None else 100 * rule.limit,
        "rule": None if rule is None else f"{'keep' if rule.keeps else 'drop'} {rule.field} {_said(rule)}",
    }


def _said(rule: FilterRule) -> str:
    return " ".join(f"{name}: {parameter}" for name, parameter in rule.check.items())
