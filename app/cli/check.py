"""`winnow check`: the configuration, and with --connect what it meets in Kafka."""

from __future__ import annotations

from pathlib import Path

import click

from app import config
from app.cli.options import check_clients, configuration, overrides, read, reports_errors


@click.command()
@configuration
@overrides
@click.option("--connect", is_flag=True, help="Also ask Kafka for topics, offsets and group members; changes nothing.")
@reports_errors
def check(file: Path | None, assignments: tuple[str, ...], connect: bool) -> int:  # noqa: FBT001  # click's flag
    """Check the configuration, and with --connect what it meets in Kafka."""
    loaded = read(file, assignments)
    settings = loaded.config
    click.echo(config.shown(loaded), nl=False)
    from app.kafka.backend import explain_backend

    click.echo(f"# clients: {explain_backend(settings.kafka, settings.output_kafka)}")
    check_clients(loaded)
    if not connect:
        return 0
    from app.driver.check import connected
    from app.start import clients

    return connected(settings, clients(settings), click.echo)
