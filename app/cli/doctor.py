"""`winnow doctor`: examines everything at once and says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from app.cli.options import PATH, clients, configuration, overrides, parser_of, read, reports_errors, status_page
from app.cli.tables import as_json, print_json, progress
from app.config import Loaded
from app.executor.parse import parse
from app.operate.doctor import Doctor, Examination, Instruments, write_bundle

NAMED = 3
"""How many places of a finding are named; JSON has all of them."""


@click.command(epilog="Example: winnow doctor --bundle report.tar.gz")
@configuration
@overrides
@status_page
@click.option(
    "--bundle",
    type=PATH,
    metavar="FILE.tar.gz",
    help="Write an archive for a bug report, too; it has no secrets and no records.",
)
@as_json
@reports_errors
def doctor(file: Path | None, assignments: tuple[str, ...], url: str, bundle: Path | None, as_json: bool) -> int:  # noqa: FBT001  # click's flags
    """
    Examine everything, and show what is wrong and how to mend it.

    Checks the configuration, Kafka, lag, retention, transactions and mirrors, audits the newest records, and asks the
    running service. Changes nothing. Exits with 1 if something is wrong, with 3 if the service would not run, and with
    4 if nothing is wrong but not everything could be examined.
    """
    from app.start import client_rules, versions

    loaded = read(file, assignments, client_rules())
    patient = Doctor(loaded, _instruments(loaded), url)
    with progress("examining", len(patient.parts), "parts") as advance:
        report = patient.examine(advance)
    if as_json:
        print_json(report.as_json())
    else:
        click.echo("\n".join(_lines(report)))
    if bundle is not None:
        write_bundle(bundle, loaded, report, versions(loaded.config))
        click.echo(f"{bundle} holds the report; look at it before you send it", err=True)
    return report.code


def _instruments(loaded: Loaded) -> Instruments:
    from app.start import fates, first_records, records, transaction_log

    settings = loaded.config
    return Instruments(
        clients(settings),
        first_records(settings.kafka, settings.group_id),
        first_records(settings.output_kafka, settings.group_id),
        records(settings.kafka, settings.group_id),
        records(settings.output_kafka, settings.group_id),
        lambda since: transaction_log(settings).open_transactions(since),
        fates,
        partial(parse, parser_of(settings.parser)),
    )


def _lines(report: Examination) -> Iterator[str]:
    """Yield a line for each finding, its cure below it, and a line for each part."""
    for found in report.findings:
        more = f" and {len(found.where) - NAMED} more" if len(found.where) > NAMED else ""
        yield f"{found.severity:<8} {', '.join(found.where[:NAMED])}{more}: {found.what}"
        if found.cure:
            yield f"{'':<9}{found.cure}"
    for part, note, symptoms in report.parts:
        yield f"{'found' if symptoms else 'ok':<8} {part}: {note or 'could not be finished'}"
    total = len(report.findings)
    counts = f"{total} finding{'s' * (total > 1)}" if total else "nothing is wrong"
    yield f"group {report.group}: {counts}"
