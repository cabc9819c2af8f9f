"""
Finds a parser by its name in the configuration.

Another package adds a parser with an entry point in the group `winnow.parsers`. The name of the entry point is what a
user writes as `parser.name`; its value is a class or a function that takes the options as keyword arguments and returns
the parser:

    [project.entry-points."winnow.parsers"]
    nginx-combined = "acme.parsers:NginxCombined"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from parsers.contract import Parser
from parsers.errors import ParserOptionError, UnknownParser, hint, listed

__all__ = ["GROUP", "ParserOptionError", "UnknownParser", "load", "names"]

GROUP = "winnow.parsers"
# Built-in parsers are registered here and nowhere else: an executor that was sent the sources has no entry points.
_BUILT_IN = (
    EntryPoint("delimited", "parsers.delimited:Delimited", GROUP),
    EntryPoint("idc-access-log", "parsers.idc_access_log:IdcAccessLog", GROUP),
)

Factory = Callable[..., object]


def names() -> list[str]:
    """Return the names of all built-in and installed parsers, sorted."""
    return sorted({point.name for point in _points()})


def load(name: str, options: Mapping[str, object]) -> Parser:
    """
    Build the parser of that name.

    Args:
        name: the name of a built-in parser or of an entry point.
        options: the parser's options as a user writes them; `.` and `-` in a key stand for `_`.

    Raises:
        UnknownParser: there is no parser of that name, or more than one, or it cannot be imported, or it has no method
            `parse`.
        ParserOptionError: an option is missing, unknown or given twice, or the parser refuses its value.
    """
    factory = _factory(name)
    arguments = _arguments(name, options)
    _check_names(name, factory, arguments)
    try:
        parser = factory(**arguments)
    except ParserOptionError as error:
        msg = f"parser {name}: {error}"
        raise ParserOptionError(msg) from error
    except (TypeError, ValueError) as error:
        msg = f"parser {name} does not accept its options: {error}"
        raise ParserOptionError(msg) from error
    if not isinstance(parser, Parser):
        msg = f"parser {name} is not a parser: {type(parser).__name__} has no method parse(lines)"
        raise UnknownParser(msg)
    return parser


def _points() -> tuple[EntryPoint, ...]:
    return (*_BUILT_IN, *entry_points(group=GROUP))


def _factory(name: str) -> Factory:
    found = {point.value: point for point in _points() if point.name == name}
    if not found:
        msg = f"no parser is called {name!r}; {hint(str(name), names())}"
        raise UnknownParser(msg)
    if len(found) > 1:
        msg = f"more than one parser is called {name!r}: {', '.join(sorted(found))}; uninstall all but one"
        raise UnknownParser(msg)
    (point,) = found.values()
    try:
        return cast("Factory", point.load())
    except (ImportError, AttributeError) as error:
        msg = f"parser {name} is registered as {point.value}, which cannot be imported: {error}"
        raise UnknownParser(msg) from error


def _arguments(name: str, options: Mapping[str, object]) -> dict[str, object]:
    arguments: dict[str, object] = {}
    for key, value in options.items():
        argument = str(key).replace(".", "_").replace("-", "_")
        if argument in arguments:
            msg = f"parser {name}: option {argument} is given twice, once as {key!r}: keep one"
            raise ParserOptionError(msg)
        arguments[argument] = value
    return arguments


def _check_names(name: str, factory: Factory, arguments: Mapping[str, object]) -> None:
    problems = list(_name_problems(factory, arguments))
    if problems:
        msg = f"parser {name}: {listed(problems)}"
        raise ParserOptionError(msg)


def _name_problems(factory: Factory, arguments: Mapping[str, object]) -> Iterator[str]:
    parameters = inspect.signature(factory).parameters.values()
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for argument in arguments:
            if argument not in named:
                yield f"no option {argument!r}; {hint(argument, named)}"
    for parameter in named.values():
        if parameter.default is parameter.empty and parameter.name not in arguments:
            yield f"option {parameter.name!r} is missing: write {parameter.name}: …"
