"""Writes a configuration for a person to continue with: above each key stands the meaning that is declared for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from types import MappingProxyType
from typing import Any

from app.config.model import declared
from app.config.shown import flow
from app.config.sources import full_name

WIDTH = 100
NONE: Mapping[str, str] = MappingProxyType({})


def commented(values: Mapping[str, Any], options: Mapping[str, str] = NONE) -> str:
    """
    Return a configuration as YAML.

    Args:
        values: nested as in a file.
        options: the meanings of the parser's options, by name.
    """
    meanings = {name: field.description or "" for name, field in declared()}
    meanings |= {f"parser.{name}": meaning for name, meaning in options.items()}
    return "".join(f"{line}\n" for line in _lines(values, meanings))


def _lines(values: Mapping[str, Any], meanings: Mapping[str, str], outer: tuple[str, ...] = ()) -> Iterator[str]:
    indent = "  " * len(outer)
    for key, value in values.items():
        keys = (*outer, str(key))
        yield from (f"{indent}# {line}" for line in wrap(meanings.get(full_name(keys), ""), WIDTH))
        match value:
            case Mapping() if value:
                yield f"{indent}{flow(key)}:"
                yield from _lines(value, meanings, keys)
            case [*items] if items and all(isinstance(each, Mapping) and each for each in items):
                yield f"{indent}{flow(key)}:"
                for each in items:
                    first, *rest = _lines(each, NONE)
                    yield f"{indent}  - {first}"
                    yield from (f"{indent}    {line}" for line in rest)
            case _:
                yield f"{indent}{flow(key)}: {flow(value)}"
