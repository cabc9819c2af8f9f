"""`winnow demo`: runs the service on a real, embedded Kafka."""

from __future__ import annotations

import click

from app import config
from app.cli.options import reports_errors


@click.command(epilog="Example: winnow demo --records 100000 --keep")
@click.option(
    "--records", type=click.IntRange(1), default=1_000_000, show_default=True, help="How many lines to produce."
)
@click.option("--keep", is_flag=True, help="Keep Kafka, the service and its status page running until Ctrl-C.")
@click.option("--rate", type=click.IntRange(1), metavar="N", help="With --keep, let N new lines per second flow.")
@reports_errors
def demo(records: int, keep: bool, rate: int | None) -> int:  # noqa: FBT001  # click's flag
    """Run the service on an embedded Kafka. Cleanses generated lines and verifies that none is lost or doubled."""
    if rate is not None and not keep:
        raise click.UsageError("--rate needs --keep")
    from app.demo.show import show

    config.clear_environment()  # the shell's would win over the demo's file, and may name a cluster in production
    return show(records, keep=keep, rate=rate or 0)
