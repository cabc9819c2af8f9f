"""The command line: `winnow run | check | parse | demo`. The one place that reads argv and sets exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import IO, Any

import click

from app import __version__, config, log
from app.errors import ConfigError, WinnowError
from parsers import registry
from parsers.contract import Parser

PARSE_LINES = 10_000
configuration = click.option(
    "-c", "--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="The configuration, a YAML file."
)
overrides = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override a key of the configuration; repeatable."
)


def _reports_errors(command: Callable[..., int]) -> Callable[..., None]:
    """End with the exit code of the outcome, and say an error in a line rather than a traceback."""

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # whatever click passes on
        try:
            code = command(*args, **kwargs)
        except ConfigError as error:
            for problem in error.problems:
                click.echo(f"configuration: {problem}", err=True)
            code = error.exit_code
        except WinnowError as error:
            click.echo(f"winnow: {error}", err=True)
            code = error.exit_code
        sys.exit(code)

    return wrapper


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="winnow")
def main() -> None:
    """Cleanse Kafka log topics on Spark, exactly once."""


@main.command()
@configuration
@overrides
@click.option("--until-end", is_flag=True, help="Stop at the ends that the partitions have when the service starts.")
@_reports_errors
def run(file: Path | None, assignments: tuple[str, ...], until_end: bool) -> int:  # noqa: FBT001  # click's flag
    """Run the service until SIGTERM, SIGINT, or the end."""
    settings = _load(file, assignments)
    from app.driver.service import Rounds, Service
    from app.driver.stop import Stop
    from app.kafka.admin import KafkaAdmin

    def start_rounds() -> Rounds:
        from app.spark import job, session

        submitted = "PYSPARK_SUBMIT_ARGS" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
        return job.SparkRounds(session.start(settings.spark, submitted=submitted))

    # Spark starts Python workers with this; unless told otherwise, with what runs the driver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    stop = Stop()
    stop.on_signals()
    kafka = KafkaAdmin(settings.kafka, settings.group_id)
    return Service(settings, kafka, start_rounds, stop).run(until_end=until_end)


@main.command()
@configuration
@overrides
@click.option("--connect", is_flag=True, help="Also ask Kafka for topics, offsets and group members; changes nothing.")
@_reports_errors
def check(file: Path | None, assignments: tuple[str, ...], connect: bool) -> int:  # noqa: FBT001  # click's flag
    """Check the configuration, and with --connect what it meets in Kafka."""
    loaded = _read(file, assignments)
    settings = loaded.config
    click.echo(config.shown(loaded), nl=False)
    from app.kafka.clients import explain_backend

    click.echo(f"# clients: {explain_backend(settings.kafka)}")
    if not connect:
        return 0
    from app.driver.check import connected

    return connected(settings, click.echo)


@main.command()
@click.argument("source", type=click.File("rb"), default="-", metavar="[FILE|-]")
@configuration
@overrides
@_reports_errors
def parse(source: IO[bytes], file: Path | None, assignments: tuple[str, ...]) -> int:
    """
    Cleanse the lines of a file or of stdin: no Kafka, no Spark.

    Cleansed lines go to stdout, one JSON object for each reject to stderr. Ends with 1 if a line was rejected.
    """
    choice = _load(file, assignments).parser if file or assignments else config.ParserChoice()
    parser = _parser(choice)
    import pyarrow as pa

    number = rejected = 0
    while lines := list(islice(source, PARSE_LINES)):
        parsed = parser.parse(pa.array([line.removesuffix(b"\n") for line in lines], pa.binary()))
        sys.stdout.buffer.writelines((value or b"") + b"\n" for value in parsed.values.to_pylist())
        for reject in parsed.rejects():
            told = {"line": number + reject.row + 1, "reason": reject.reason, "detail": reject.detail}
            click.echo(json.dumps(told, ensure_ascii=False), err=True)
        number += len(lines)
        rejected += len(parsed.reject_rows)
    sys.stdout.buffer.flush()
    return 1 if rejected else 0


@main.command()
@click.option("--records", default=1_000_000, show_default=True, help="How many lines to produce.")
@click.option("--keep", is_flag=True, help="Keep the broker running afterwards, until Ctrl-C.")
@_reports_errors
def demo(records: int, keep: bool) -> int:  # noqa: FBT001  # click's flag
    """Cleanse generated lines on an embedded real Kafka, and count that none is lost or doubled."""
    from app.demo.show import show

    return show(records, keep=keep)


def _load(file: Path | None, assignments: tuple[str, ...]) -> config.Config:
    return _read(file, assignments).config


def _read(file: Path | None, assignments: tuple[str, ...]) -> config.Loaded:
    """Read the configuration, make sure that its parser can be built, and set up logging as it says."""
    loaded = config.read(file, assignments)
    _parser(loaded.config.parser)
    log.configure(loaded.config.log_level)
    return loaded


def _parser(choice: config.ParserChoice) -> Parser:
    try:
        return registry.load(choice.name, choice.options)
    except ValueError as error:
        raise ConfigError(tuple(_indented(str(error)))) from None


def _indented(problems: str) -> Iterator[str]:
    return (f"parser: {problem}" for problem in problems.splitlines())


if __name__ == "__main__":
    main()
