"""Options and checks that commands share, and how they exit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from app import config, log
from app.errors import ConfigError, WinnowError
from app.model import SOURCE_KEY, Guarantee, Plugin
from app.offsets import registry as stores
from app.offsets.contract import StoreContext, is_local
from parsers import registry
from parsers.contract import Parser
from parsers.fields import pattern_of

T = TypeVar("T")

configuration = click.option(
    "-c", "--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="The configuration file (YAML)."
)
overrides = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override a key of the configuration; repeatable."
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


def read(file: Path | None, assignments: tuple[str, ...]) -> config.Loaded:
    """Return the configuration after checking that its plugins can be built, and configure logging."""
    loaded = config.read(file, assignments)
    parser, key = parser_of(loaded.config.parser), loaded.config.sink.key
    if key != SOURCE_KEY:
        built("sink.key", lambda: pattern_of(parser, key))
    _check_stores(loaded.config)
    log.configure(loaded.config.log_level, group=loaded.config.group_id)
    return loaded


def check_clients(loaded: config.Loaded) -> None:
    """Check that librdkafka accepts the `kafka` and `sink.kafka` properties, without connecting."""
    from app.kafka.trial import refusals

    settings = loaded.config
    problems = []
    for section, kafka in ((("kafka",), settings.kafka), (("sink", "kafka"), settings.sink.kafka)):
        for name, problem in refusals(kafka, settings.delivery_guarantee, ".".join(section)):
            origin = loaded.origins.get((*section, name))
            problems.append(f"{problem} ({origin})" if origin else problem)
    if problems:
        raise ConfigError(tuple(problems))


def parser_of(choice: config.ParserChoice) -> Parser:
    """Return the configured parser."""
    return built("parser", lambda: registry.load(choice.name, choice.options))


def _check_stores(settings: config.Config) -> None:
    """Check that the offset store and its mirrors can be opened and suit their roles."""
    choice, context = settings.offsets.store, StoreContext(settings.group_id, settings.output_kafka)
    store = built("offsets.store", lambda: stores.open_store(choice.plugin, context))
    problems: list[str] = []
    if settings.delivery_guarantee is Guarantee.EXACTLY_ONCE and not store.transactional:
        problems.append(
            f"offsets.store.name is {choice.name}, which cannot join Kafka's transactions: "
            "set delivery.guarantee to at-least-once, or offsets.store.name to kafka"
        )
    known = [choice.plugin]
    for place, mirror in enumerate(settings.offsets.mirrors):
        problems += _problems_of_mirror(f"offsets.mirrors[{place}]", mirror.plugin, context, known)
        known.append(mirror.plugin)
    if problems:
        raise ConfigError(tuple(problems))


def _problems_of_mirror(key: str, mirror: Plugin, context: StoreContext, known: Sequence[Plugin]) -> Iterator[str]:
    try:
        opened = built(key, lambda: stores.open_store(mirror, context))
    except ConfigError as error:
        yield from error.problems
        return
    if is_local(opened):
        yield f"{key}: {mirror.name} stores nothing that a tool could read"
    if mirror in known:
        yield f"{key}: {mirror.name} already holds these offsets; list each store once"


def refuse_backward(option: str, begin: int | None, end: int | None) -> None:
    """
    Reject an empty time range, in which a command would find nothing wrong; `option` names the end.

    Raises:
        ConfigError: the end is not later than the beginning.
    """
    if begin is not None and end is not None and end <= begin:
        raise ConfigError((f"{option}: the end must be later than the start",))


def built(key: str, build: Callable[[], T]) -> T:
    """Return what `build` returns; report the problems of its ValueError under the key."""
    try:
        return build()
    except ValueError as error:
        raise ConfigError(tuple(f"{key}: {problem}" for problem in str(error).splitlines())) from None
