"""
Finds plugins by name and builds them from their options: parsers here, offset stores in `app.offsets`.

Built-in plugins are listed in code, because an executor that gets only the sources has no package metadata. Other
packages register theirs with entry points.

A plugin is described by its signature and its docstring, which has sections as in this project: `Args:` with a line
`name: meaning` for each option, and `Example:` with the YAML of the `parser` section.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from textwrap import dedent
from typing import Any, NamedTuple, cast

from parsers.errors import hint, listed, nearest, unlisted

Factory = Callable[..., object]

PRODUCT = "winnow-kafka"
"""Our distribution, in the install hints for built-in plugins' extras; on PyPI, `winnow` is another project."""
_SECTION = re.compile(r"^(\w+):\n((?:(?: {4}.*)?\n)+)", re.MULTILINE)
_ARGUMENT = re.compile(r"^(\w+): (.*(?:\n {4,}.*)*)", re.MULTILINE)


class Option(NamedTuple):
    """
    An option of a plugin.

    Args:
        name: as users write it, such as `output.separator`.
        default: as YAML; None if it must be given.
        meaning: empty if the docstring does not say.
    """

    name: str
    default: str | None
    meaning: str


class Description(NamedTuple):
    """What a plugin does, in a sentence; its options; and an example, which is empty if there is none."""

    summary: str
    options: tuple[Option, ...]
    example: str


@dataclass(frozen=True, slots=True)
class Plugins:
    """
    The plugins of one kind.

    Args:
        kind: the kind in messages, such as `parser`.
        method: the method that makes an object such a plugin, with its arguments, for messages.
        group: the group of their entry points.
        built_in: name → `module:attribute`, followed by `[extra]` if it needs an optional package.
        protocol: the type that a plugin must be an instance of.
        unknown: the error for a name without a usable plugin.
        wrong_option: the error for an option that is unknown, missing or wrong, or with which building fails.
        passed_on: the errors that a plugin may raise while it is built.
    """

    kind: str
    method: str
    group: str
    built_in: Mapping[str, str]
    protocol: type
    unknown: type[ValueError]
    wrong_option: type[ValueError]
    passed_on: tuple[type[Exception], ...] = ()

    def names(self) -> list[str]:
        return sorted({point.name for point in self._points()})

    def load(self, name: str, options: Mapping[str, object], *arguments: object) -> object:
        """
        Build the plugin of that name.

        Args:
            options: its options as the user writes them; `.` and `-` in a key stand for `_`.
            arguments: what every plugin of this kind takes before its options.
        """
        factory = self._factory(name)
        if twice := _as_written(options)[1]:
            raise self.wrong_option(f"{self.kind} {name}: {twice[0][1]}")
        keywords = {_keyword(str(key)): value for key, value in options.items()}
        problems = [problem for _, problem in _problems(factory, keywords, len(arguments))]
        if problems:
            raise self.wrong_option(f"{self.kind} {name}: {listed(problems)}")
        try:
            plugin = factory(*arguments, **keywords)
        except self.wrong_option as error:
            raise self.wrong_option(f"{self.kind} {name}: {error}") from error
        except self.passed_on:
            raise
        except (TypeError, ValueError) as error:
            raise self.wrong_option(f"{self.kind} {name} does not accept its options: {error}") from error
        except (Exception, SystemExit) as error:  # a user's code may raise anything
            if name in self.built_in:  # ours say what is wrong
                raise
            raise self.wrong_option(f"{self.kind} {name} cannot be built: {type(error).__name__}: {error}") from error
        if not isinstance(plugin, self.protocol):
            raise self.unknown(f"{self.kind} {name} is not usable: {type(plugin).__name__} has no method {self.method}")
        return plugin

    def problems(self, name: str, options: Mapping[str, object], *arguments: object) -> list[tuple[str, str]]:
        """
        Return everything for which `load` refuses the options: each option as it is written, and a sentence.

        The option is empty if the problem is of none, or of one that is missing. A misspelt option is also judged by
        its value, as if it had the nearest name. Raises the error for an unknown name.
        """
        factory, (written, twice) = self._factory(name), _as_written(options)
        wrong = _problems(factory, dict.fromkeys(written), len(arguments))
        found = twice + [(written.get(option, ""), problem) for option, problem in wrong]
        right = _spelt(factory, {_keyword(str(key)): value for key, value in options.items()}, len(arguments))
        if twice or any(True for _ in _problems(factory, right, len(arguments))):
            return found
        try:
            self.load(name, right, *arguments)
        except self.wrong_option as error:
            said = str(error).removeprefix(f"{self.kind} {name}").removeprefix(":")
            found += [(written.get(_named_first(problem), ""), problem) for problem in unlisted(said)]
        return found

    def describe(self, name: str) -> Description:
        """Return what the plugin of that name does, and its options. Raises the error for an unknown name."""
        factory = self._factory(name)
        text = f"{inspect.getdoc(factory) or ''}\n"
        summary = " ".join(text.partition("\n\n")[0].split())
        return Description(summary, tuple(_options(factory)), _sections(text).get("Example", "").strip())

    def _points(self) -> tuple[EntryPoint, ...]:
        own = (EntryPoint(name, value, self.group) for name, value in self.built_in.items())
        return (*own, *_registered(self.group, tuple(sys.path)))

    def _factory(self, name: str) -> Factory:
        found = {point.value: point for point in self._points() if point.name == name}
        if not found:
            raise self.unknown(f"no {self.kind} is called {name!r}; {hint(str(name), self.names())}")
        if len(found) > 1:
            msg = f"more than one {self.kind} is called {name!r}: {', '.join(sorted(found))}; uninstall all but one"
            raise self.unknown(msg)
        (point,) = found.values()
        try:
            factory = cast("Factory", point.load())
            _parameters(factory)
        except (Exception, SystemExit) as error:  # importing runs user code, which may raise anything
            if point.extras and isinstance(error, ModuleNotFoundError) and _is_not_ours(error.name):
                package = f"{point.dist.name if point.dist else PRODUCT}[{','.join(point.extras)}]"
                lacks = f"{self.kind} {name} needs the package {error.name}, which is not installed"
                raise self.unknown(f"{lacks}: pip install '{package}'") from error
            cause = f"{type(error).__name__}: {error}"
            msg = f"{self.kind} {name} is registered as {point.value}, which cannot be imported: {cause}"
            raise self.unknown(msg) from error
        return factory


@cache
def _registered(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return what other packages register. Cached for each module path: to look reads a file of every package on it."""
    return tuple(entry_points(group=group))


def _keyword(key: str) -> str:
    return key.replace(".", "_").replace("-", "_")


def _as_written(options: Mapping[str, object]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return each option as it is first written, and those that are given twice, with a sentence."""
    written: dict[str, str] = {}
    twice = [key for key in map(str, options) if written.setdefault(_keyword(key), key) != key]
    return written, [(key, f"option {_keyword(key)} is given twice, once as {key!r}: remove one") for key in twice]


def _named_first(problem: str) -> str:
    """Return the word that a problem begins with, which is an option's name if a parser says what is wrong with it."""
    return _keyword(problem.split(" ", maxsplit=1)[0].rstrip(":"))


def _is_not_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] not in ("app", "parsers")


def _spelt(factory: Factory, keywords: Mapping[str, object], positional: int) -> dict[str, object]:
    """Return the options with the nearest name in place of a misspelt one, and without those that are near none."""
    unknown = {option for option, _ in _problems(factory, keywords, positional) if option in keywords}
    free = _named(factory, positional).keys() - keywords.keys()
    meant = {nearest(option, sorted(free)): keywords[option] for option in unknown}
    right = {option: value for option, value in keywords.items() if option not in unknown}
    return right | {option: value for option, value in meant.items() if option}


@cache
def _parameters(factory: Factory) -> Sequence[inspect.Parameter]:
    return tuple(inspect.signature(factory).parameters.values())


def _named(factory: Factory, positional: int) -> dict[str, inspect.Parameter]:
    parameters = _parameters(factory)[positional:]
    return {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def _problems(factory: Factory, keywords: Mapping[str, object], positional: int) -> Iterator[tuple[str, str]]:
    """Yield each unknown or missing option with a sentence."""
    named = _named(factory, positional)
    if not any(p.kind is p.VAR_KEYWORD for p in _parameters(factory)):
        for keyword in keywords:
            if keyword not in named:
                yield keyword, f"no option {keyword!r}; {hint(keyword, named)}"
    for parameter in named.values():
        if parameter.default is parameter.empty and parameter.name not in keywords:
            yield parameter.name, f"option {parameter.name!r} is missing: write {parameter.name}: …"


def _options(factory: Factory) -> Iterator[Option]:
    # A class takes options of its base classes, too, and they say what those mean.
    classes = reversed(factory.__mro__) if isinstance(factory, type) else ()
    meanings = {name: said for each in (*classes, factory) for name, said in _meanings(f"{inspect.getdoc(each)}\n")}
    for each in _named(factory, 0).values():
        default = None if each.default is each.empty else _yaml(each.default)
        yield Option(each.name.replace("_", "."), default, meanings.get(each.name, ""))


def _meanings(text: str) -> Iterator[tuple[str, str]]:
    for name, said in _ARGUMENT.findall(_sections(text).get("Args", "")):
        yield name, " ".join(said.split())


def _sections(text: str) -> dict[str, str]:
    return {name: dedent(content) for name, content in _SECTION.findall(text)}


def _yaml(value: Any) -> str:  # noqa: ANN401  # any default
    """Write a value as YAML: a word as it is, and anything else as JSON, which YAML contains."""
    if isinstance(value, str) and re.fullmatch(r"[\w-]+", value):
        return value
    return json.dumps(dict(value) if isinstance(value, Mapping) else value, ensure_ascii=False, default=str)
