"""
Describes a plugin by its signature and its docstring: for each option a default and a meaning, and an example.

The docstring has sections as in this project: `Args:` with a line `name: meaning` for each option, and `Example:` with
the YAML of the `parser` section.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from textwrap import dedent
from typing import Any, NamedTuple

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


def described(factory: Callable[..., object]) -> Description:
    text = f"{inspect.getdoc(factory) or ''}\n"
    summary = " ".join(text.partition("\n\n")[0].split())
    # A class takes options of its base classes, too, and they say what those mean.
    classes = reversed(factory.__mro__) if isinstance(factory, type) else ()
    meanings = {name: said for each in (*classes, factory) for name, said in _meanings(f"{inspect.getdoc(each)}\n")}
    return Description(summary, tuple(_options(factory, meanings)), _sections(text).get("Example", "").strip())


def _sections(text: str) -> dict[str, str]:
    return {name: dedent(content) for name, content in _SECTION.findall(text)}


def _meanings(text: str) -> Iterator[tuple[str, str]]:
    for name, said in _ARGUMENT.findall(_sections(text).get("Args", "")):
        yield name, " ".join(said.split())


def _options(factory: Callable[..., object], meanings: Mapping[str, str]) -> Iterator[Option]:
    for each in inspect.signature(factory).parameters.values():
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            default = None if each.default is each.empty else _yaml(each.default)
            yield Option(each.name.replace("_", "."), default, meanings.get(each.name, ""))


def _yaml(value: Any) -> str:  # noqa: ANN401  # any default
    """Write a value as YAML: a word as it is, and anything else as JSON, which YAML contains."""
    if isinstance(value, str) and re.fullmatch(r"[\w-]+", value):
        return value
    return json.dumps(dict(value) if isinstance(value, Mapping) else value, ensure_ascii=False, default=str)
