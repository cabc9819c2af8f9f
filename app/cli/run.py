"""`winnow run`: runs the service."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from app import config
from app.cli.options import configuration, overrides, read, reports_errors
from app.events import Event


@click.command(epilog="Example: winnow run --until-end")
@configuration
@overrides
@click.option("--until-end", is_flag=True, help="Stop at the end offsets that the partitions have at the start.")
@click.option(
    "--stand-by", is_flag=True, help="Wait while another service of this generation is working for the group."
)
@reports_errors
def run(file: Path | None, assignments: tuple[str, ...], until_end: bool, stand_by: bool) -> int:  # noqa: FBT001  # click's flags
    """Run the service until SIGTERM or SIGINT."""
    from app.start import client_rules, service

    loaded = read(file, assignments, client_rules())
    settings = loaded.config
    if warning := config.exposed_secrets(loaded):
        Event.PREFLIGHT_WARNING.log(finding=warning)
    config.clear_environment()
    from app.driver.clients import Rounds
    from app.driver.stop import Stop

    # Spark starts Python workers with this interpreter, by default the driver's own.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = "PYSPARK_SUBMIT_ARGS" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    stop = Stop()
    stop.on_signals()

    def rounds() -> Rounds:
        from app.spark.job import start_rounds  # takes seconds to import on a busy machine; the page is up by now

        return start_rounds(settings.spark, settings.group_id, submitted=submitted)

    return service(settings, rounds, stop, options=config.options(loaded)).run(until_end=until_end, stand_by=stand_by)
