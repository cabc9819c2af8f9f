"""`winnow check`: checks the configuration, its samples and, with --connect, the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from app import config
from app.cli.options import clients, configuration, overrides, parser_of, read, reports_errors
from app.cli.tables import as_json, exact, print_json
from app.errors import ConfigError, WinnowError
from app.executor.parse import parse
from app.operate.outcomes import failed_samples


@click.command(epilog="Example: winnow check --connect")
@configuration
@overrides
@click.option("--connect", is_flag=True, help="Check topics, offsets and group members in Kafka, too; changes nothing.")
@as_json
@reports_errors
def check(file: Path | None, assignments: tuple[str, ...], connect: bool, as_json: bool) -> int:  # noqa: FBT001  # click's flags
    """
    Check the configuration and its samples. `winnow config` shows its values.

    Exits with 1 if a sample gives another result or a partition is blocked, and with 3 if `run` would refuse to start.
    """
    report = Report()
    try:
        from app.start import client_rules

        return _check(report, read(file, assignments, client_rules()), connect=connect)
    except ConfigError as error:
        report.problems = error.problems
        raise
    finally:
        if as_json:
            print_json(report.as_json())
        else:
            for line in report.lines:
                click.echo(line)


@dataclass(slots=True)
class Report:
    """The findings so far; `clients` says which backend moves the records, and why."""

    loaded: config.Loaded | None = None
    problems: tuple[str, ...] = ()
    clients: str = ""
    findings: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """The same for people."""

    def say(self, state: str, what: str | WinnowError, *more: str) -> None:
        """Add a finding; for people, `more` are lines that say it better."""
        said = exact(str(what))
        self.findings.append((state, said))
        first, *rest = more or (said,)
        self.lines += [f"{state:<8} {first}", *(f"{'':<9}{each}" for each in rest)]

    def as_json(self) -> dict[str, Any]:
        """Return the report as one JSON object; only a wrong configuration has problems."""
        values = [each._asdict() for each in config.values(self.loaded)] if self.loaded else []
        found = [{"state": state, "what": what} for state, what in self.findings]
        return {"version": 1, "problems": self.problems, "values": values, "clients": self.clients, "findings": found}


def _check(report: Report, loaded: config.Loaded, *, connect: bool) -> int:
    report.loaded, settings = loaded, loaded.config
    if warning := config.exposed_secrets(loaded):
        report.say("warns", warning)
    from app.start import backend

    report.clients = backend(settings)
    report.lines.append(f"{'ok':<8} clients: {report.clients}")
    tried = settings.parser.samples
    failed = failed_samples(tried, partial(parse, parser_of(settings.parser)))
    for each in failed:
        report.say("fails", str(each), *each.difference)
    code = 0
    if connect:
        from app.driver.check import connected

        code = connected(settings, clients(settings), report.say)
    elif unknown := config.undecided(settings):
        report.say("warns", unknown)
    if not (code or failed):
        expected = f", and all {len(tried)} samples give what they should" if tried else ""
        starts = ": the service could start" if connect else ""
        report.lines.append(f"{'ok':<8} {loaded.file or 'the configuration'} is right{expected}{starts}")
    return max(code, 1 if failed else 0)
