"""Options and checks that commands share, and how they read their arguments and exit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from app import config, log
from app.cli.layout import View
from app.cli.tables import as_json, show
from app.driver.clients import Clients
from app.errors import ConfigError, WinnowError, built
from app.executor.parse import PARSER_ERROR, REFUSED, TOO_LARGE
from app.model import SOURCE_KEY
from app.operate.parser_options import FILTERS_FIT, PARSER_FITS
from app.operate.reasons import doubts
from app.operate.stores import check_stores
from app.times import milliseconds_of
from parsers import registry
from parsers.contract import Parser
from parsers.flume.envelope import REASON as ENVELOPE
from parsers.keys import pattern_of

OF_NO_PARSER = (TOO_LARGE, ENVELOPE, PARSER_ERROR, REFUSED)
"""The reasons that a task gives itself."""

configuration = click.option(
    "-c", "--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="The configuration file (YAML)."
)
overrides = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override a key of the configuration; repeatable."
)


topics = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITIONS]",
    help="Only these, such as raw-logs or raw-logs:0,3-5; repeatable. By default all source topics.",
)


def reports_errors(command: Callable[..., int]) -> Callable[..., None]:
    """Exit with the command's code, and print an error as a line instead of a traceback."""

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


def configured(command: Callable[..., int]) -> Callable[..., None]:
    """Add the options of the configuration, and report errors; the command receives the checked configuration."""

    @configuration
    @overrides
    @reports_errors
    @wraps(command)
    def wrapper(*, file: Path | None, assignments: tuple[str, ...], **options: object) -> int:
        return command(read(file, assignments).config, **options)

    return wrapper


def shown(command: Callable[..., View]) -> Callable[..., int]:
    """Add `--json`, and print what the command returns, as JSON or as a table."""

    @as_json
    @wraps(command)
    def wrapper(*args: object, as_json: bool, **options: object) -> int:
        return show(command(*args, **options), as_json=as_json)

    return wrapper


def read(file: Path | None, assignments: tuple[str, ...], more_rules: Iterable[config.Rule] = ()) -> config.Loaded:
    """Return the configuration after checking that its plugins can be built, and configure logging."""
    loaded = config.read(file, assignments, more_rules=(PARSER_FITS, FILTERS_FIT, *more_rules))
    parser, key = parser_of(loaded.config.parser), loaded.config.sink.key
    if key != SOURCE_KEY:
        built("sink.key", lambda: pattern_of(parser, key))
    check_stores(loaded.config)
    log.configure(loaded.config.log_level, group=loaded.config.group_id)
    return loaded


def clients(settings: config.Config) -> Clients:
    """Return the driver's clients; the command closes its offset store when it ends."""
    from app import start

    made = start.clients(settings)
    click.get_current_context().call_on_close(made.offsets.close)
    return made


def parser_of(choice: config.ParserChoice) -> Parser:
    return built("parser", lambda: registry.load(choice.name, choice.options))


def reasons_of(settings: config.Config, asked: tuple[str, ...]) -> tuple[str, ...]:
    """Return the reasons that were asked for, and question those that may be misspelt."""
    for doubt in doubts(asked, parser_of(settings.parser), OF_NO_PARSER):
        click.echo(f"winnow: {doubt}", err=True)
    return asked


def between(begin: tuple[str, str | None], end: tuple[str, str | None]) -> tuple[int | None, int | None]:
    """
    Return two times, each given as an option's name and value, in milliseconds since the epoch.

    Raises:
        ConfigError: one is not a time; or the end is not later than the beginning, which would find nothing wrong.
    """
    since, until = (
        None if text is None else built(name, lambda text=text: milliseconds_of(text))  # type: ignore[misc]  # its own
        for name, text in (begin, end)
    )
    if since is not None and until is not None and until <= since:
        raise ConfigError((f"{end[0]}: the end must be later than the start",))
    return since, until
