"""
Presents the configuration: values with their origins but without secrets, and the JSON schema of keys.

Also writes one for a person to continue with: above each key stands the meaning that is declared for it.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any, NamedTuple

import yaml

from app.config.model import PROPERTY_SECTIONS, Config, declared, is_value
from app.config.reading import Loaded
from app.config.secrets import masked
from app.config.sources import DEFAULT, Origins, full_name, leaves, named
from app.cures import PLACEHOLDERS
from app.secrets import hint

DIALECT = "https://json-schema.org/draft/2020-12/schema"
WIDTH = 100


def shown(loaded: Loaded) -> str:
    """Return the configuration as YAML, with the origin of each value in a comment."""
    return "".join(f"{line}\n" for line in _lines(masked(loaded.config), loaded.origins))


class Value(NamedTuple):
    """A value with the full name of its key and its origin."""

    key: str
    value: object
    origin: str


def values(loaded: Loaded) -> list[Value]:
    """Return every value, masked, with its origin."""
    shown = (leaf for key, value in masked(loaded.config).items() for leaf in leaves(value, (key,)))
    return [Value(full_name(keys), value, loaded.origins.get(named(keys), DEFAULT)) for keys, value in shown]


def options(loaded: Loaded) -> str:
    """
    Return the options with which a command reads the same configuration; `***` stands for a secret.

    Samples are left out: they may be real records, and what is suggested goes into reports to strangers.
    Without a file and options, all of it is in the environment, and any file can stand in the command.
    """
    file = [] if loaded.file is None else ["-c", str(loaded.file.absolute())]
    given = (each for each in values(loaded) if each.origin.startswith("--set ") and each.key != "parser.samples")
    settings = (word for each in given for word in ("--set", f"{each.key}={flow(each.value)}"))
    return shlex.join([*file, *settings]) or PLACEHOLDERS.options


def schema() -> dict[str, Any]:
    """
    Return the schema of the file, for editors.

    It covers single keys. Only `winnow check` knows the rules between keys and the options of parsers and stores. No
    key is required, because it may be set in the environment. Keys that are written with dots are not looked at.
    """
    found = Config.model_json_schema(by_alias=True)
    sections = found["$defs"]
    for section in (found, *sections.values()):
        section.pop("required", None)
        inner = [name for name, key in section.get("properties", {}).items() if _may_be_section(key, sections)]
        if inner:
            section["patternProperties"] = {rf"^({'|'.join(map(re.escape, inner))})\.": {}}
    return {"$schema": DIALECT} | found | {"title": "Winnow"}


def _may_be_section(key: Mapping[str, Any], sections: Mapping[str, Any]) -> bool:
    forms = (sections.get(each.get("$ref", "").rpartition("/")[2], each) for each in (key, *key.get("anyOf", ())))
    return any(form.get("type") == "object" for form in forms)


def _lines(
    section: Mapping[str, Any], origins: Origins, outer: tuple[str, ...] = (), default: str = DEFAULT
) -> Iterator[str]:
    indent = "  " * len(outer)
    for key, value in section.items():
        keys = (*outer, key)
        origin = origins.get(keys, default)
        if isinstance(value, dict) and value:
            yield f"{indent}{flow(key)}:"
            yield from _lines(value, origins, keys, origin if is_value(keys) else DEFAULT)
        else:
            meant = hint(key) if outer in PROPERTY_SECTIONS and outer != ("spark",) else ""
            yield f"{indent}{flow(key)}: {flow(value)}  # {origin}{meant and f'; {meant}'}"


def flow(value: object) -> str:
    """Return a value as one line of YAML, so that a comment can follow."""
    style: dict[str, Any] = {"default_flow_style": True, "allow_unicode": True, "sort_keys": False, "width": math.inf}
    text: str = yaml.safe_dump([value], **style).strip()[1:-1]
    return text if len(text.splitlines()) == 1 else yaml.safe_dump([value], **style, default_style='"').strip()[1:-1]


def commented(values: Mapping[str, Any], options: Mapping[str, str]) -> str:
    """
    Return a configuration as YAML.

    Args:
        values: nested as in a file.
        options: the meanings of the parser's options, by name.
    """
    meanings = {name: field.description or "" for name, field in declared()}
    meanings |= {f"parser.{name}": meaning for name, meaning in options.items()}
    return "".join(f"{line}\n" for line in _commented(values, meanings))


def _commented(values: Mapping[str, Any], meanings: Mapping[str, str], outer: tuple[str, ...] = ()) -> Iterator[str]:
    indent = "  " * len(outer)
    for key, value in values.items():
        keys = (*outer, str(key))
        yield from (f"{indent}# {line}" for line in wrap(meanings.get(full_name(keys), ""), WIDTH))
        match value:
            case Mapping() if value:
                yield f"{indent}{flow(key)}:"
                yield from _commented(value, meanings, keys)
            case [*items] if items and all(isinstance(each, Mapping) and each for each in items):
                yield f"{indent}{flow(key)}:"
                for each in items:
                    first, *rest = _commented(each, {})
                    yield f"{indent}  - {first}"
                    yield from (f"{indent}    {line}" for line in rest)
            case _:
                yield f"{indent}{flow(key)}: {flow(value)}"
