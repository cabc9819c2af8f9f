"""Options and checks that commands share, and how they read their arguments and exit."""

from __future__ import annotations

import errno
import math
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from app import config, log
from app.cli.layout import View
from app.cli.tables import as_json, exact, has_read, show
from app.driver.clients import Clients
from app.errors import ConfigError, NotUsable, WinnowError, built
from app.executor.parse import PARSER_ERROR, REFUSED, TOO_LARGE
from app.operate.plugin_rules import PLUGINS_FIT
from app.operate.served import is_address
from app.times import ago, assumed, milliseconds_of, seconds_of
from parsers import registry
from parsers.contract import Parser
from parsers.errors import nearest
from parsers.fields import FieldParser
from parsers.flume.envelope import REASON as ENVELOPE

R = TypeVar("R")
NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""The errors of an output's disk: it is full, a quota or a limit of the file's size is reached, or it fails."""
OF_NO_PARSER = (TOO_LARGE, ENVELOPE, PARSER_ERROR, REFUSED)
"""The reasons that a task gives itself."""

PATH = click.Path(path_type=Path, dir_okay=False)
configuration = click.option(
    "-c",
    "--config",
    "file",
    type=PATH,
    envvar=config.FILE_VARIABLE,
    default=lambda: config.FILE if config.FILE.exists() else None,
    help=f"The configuration file (YAML); by default ${config.FILE_VARIABLE}, or else {config.FILE} if it exists.",
)
overrides = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override a key of the configuration; repeatable."
)


def _address(_: click.Context, __: click.Parameter, url: str) -> str:
    if url and not is_address(url):
        raise click.BadParameter(f"{url!r} is not an HTTP address, such as http://127.0.0.1:8090")
    return url


status_page = click.option(
    "--status",
    "url",
    default="",
    metavar="URL",
    callback=_address,
    help="Where the running service serves its status page.",
)
topics = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITIONS]",
    help="Only these, such as raw-logs or raw-logs:0,3-5; repeatable. By default all source topics.",
)


def reports_errors(command: Callable[..., int]) -> Callable[..., None]:
    """
    Exit with the command's code, or as a shell reports SIGINT or SIGPIPE; print an error instead of a traceback.

    No error of the output is reported as 1, which stands for findings.
    """

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # whatever click passes on
        try:
            code = command(*args, **kwargs)
        except ConfigError as error:
            code = _ends(error.exit_code, *(f"configuration: {problem}" for problem in error.problems))
        except WinnowError as error:
            code = _ends(error.exit_code, f"winnow: {error}")
        except KeyboardInterrupt:
            code = _ends(128 + signal.SIGINT, "\nwinnow: interrupted")
        except BrokenPipeError:  # what read the output has ended, as head does
            code = 128 + signal.SIGPIPE
        except OSError as error:
            if error.errno not in NOT_WRITTEN:
                raise
            code = _ends(NotUsable.exit_code, f"winnow: {error}")
        sys.exit(code)

    return wrapper


def _ends(code: int, *lines: str) -> int:
    """Say why the command ends, if anybody takes it, and return its exit code."""
    with suppress(OSError):
        for line in lines:
            click.echo(exact(line), err=True)
    return code


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
    loaded = config.read(file, assignments, more_rules=(*PLUGINS_FIT, *more_rules))
    has_read(config.options(loaded))
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
    """
    Return the reasons asked for; question, but take, a near miss: dead letters may be of another parser.

    An own parser does not tell its reasons, so none is questioned.
    """
    parser = parser_of(settings.parser)
    known = (*parser.reasons, *OF_NO_PARSER) if isinstance(parser, FieldParser) else ()
    for each in dict.fromkeys(asked):
        if each not in known and (name := nearest(each, known)):
            wrong = f"--reason {each}: this configuration gives no such reason"
            click.echo(f"winnow: {wrong}; did you mean {name}?", err=True)
    return asked


class TextParam(click.ParamType[Any]):
    """A value that a function reads from its text; the function's ValueError says what is wrong with it."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  # click's
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def moment(text: str) -> int:
    """Return a time as milliseconds since the epoch, and say how one without a zone is read."""
    found = milliseconds_of(text)
    if local := assumed(text):
        click.echo(f"{text} is read as {local}", err=True)
    return found


MOMENT, DURATION = TextParam("time", moment), TextParam("duration", seconds_of)


class Number(click.FloatRange):
    """A number in a range, in which click would take NaN to be."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  # click's
        found = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number", param, ctx) if math.isnan(found) else found


PERCENT = Number(0, 100, min_open=True)
interval = click.option(
    "--interval",
    type=Number(0.2, 86_400),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look again.",
)


class Period(NamedTuple):
    """A range of time in milliseconds since the epoch; None for an end that is open."""

    since: int | None = None
    until: int | None = None


def ranged(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options that choose a range of time; the command receives it as `times`."""

    @click.option("--since", "--from", "since", type=MOMENT, help="Start at the first record at or after this time.")
    @click.option("--until", "--to", "until", type=MOMENT, help="Stop at the first record at or after this time.")
    @click.option("--last", type=DURATION, help="Only the last 2h; the same as --since '2h ago'.")
    @wraps(command)
    def wrapper(*args: object, since: int | None, until: int | None, last: float | None, **options: object) -> R:
        if last is not None:
            if since is not None or until is not None:
                raise click.UsageError("give either --last or --since and --until")
            since = ago(last)
        if since is not None and until is not None and until <= since:
            raise click.UsageError("--until: the end must be later than the start")
        return command(*args, times=Period(since, until), **options)

    return wrapper
