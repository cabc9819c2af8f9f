"""Shows the configuration to people: its values with their origins and without secrets, and the table of its keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from app.config.model import Config, declared, duration
from app.config.reading import Loaded
from app.config.sources import DEFAULT, Origins
from app.kafka import properties as kafka_properties
from app.spark import properties as spark_properties

MASK = "********"
PASSWORD_IN_URL = re.compile(r"(://[^/@:]*:)[^/@]*@")


def shown(loaded: Loaded) -> str:
    """Return the configuration as YAML, with the origin of each value in a comment."""
    return "".join(f"{line}\n" for line in _lines(masked(loaded.config), loaded.origins))


def masked(config: Config) -> dict[str, Any]:
    """Return the configuration as a tree in which secrets are replaced."""
    tree = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    for holder in (tree, tree["sink"]):
        holder["kafka"] = _without_secrets(holder["kafka"], _is_secret)
    tree["spark"] = _without_secrets(tree["spark"], spark_properties.is_secret)
    tree["offsets"] = _without_secrets(tree["offsets"], _is_secret)
    return tree


def described() -> Iterator[tuple[str, str, str]]:
    """Yield each key with its default and its meaning, for help and documents."""
    for name, field in declared():
        yield name, "" if field.is_required() else _default(field.get_default()), field.description or ""


def _is_secret(name: str, _value: str) -> bool:
    return kafka_properties.is_secret(name)


def _without_secrets(section: Mapping[str, Any], is_secret: Callable[[str, str], bool]) -> dict[str, Any]:
    return {name: _masked(str(name), value, is_secret) for name, value in section.items()}


def _masked(name: str, value: object, is_secret: Callable[[str, str], bool]) -> object:
    if isinstance(value, dict) and not is_secret(name, ""):
        return _without_secrets(value, is_secret)
    if is_secret(name, str(value)):
        return MASK
    if isinstance(value, list):
        return [_masked(name, each, is_secret) for each in value]
    return PASSWORD_IN_URL.sub(rf"\1{MASK}@", value) if isinstance(value, str) else value


def _lines(section: Mapping[str, Any], origins: Origins, outer: tuple[str, ...] = ()) -> Iterator[str]:
    indent = "  " * len(outer)
    for key, value in section.items():
        keys = (*outer, key)
        if isinstance(value, dict) and value:
            yield f"{indent}{_flow(key)}:"
            yield from _lines(value, origins, keys)
        else:
            yield f"{indent}{_flow(key)}: {_flow(value)}  # {origins.get(keys, DEFAULT)}"


def _flow(value: object) -> str:
    """Write a value in one line of YAML, so that a comment can follow it."""
    text = _dumped(value, quotes=None)
    return text if len(text.splitlines()) == 1 else _dumped(value, quotes='"')


def _dumped(value: object, quotes: str | None) -> str:
    text = yaml.safe_dump(
        [value],
        default_flow_style=True,
        default_style=quotes,
        allow_unicode=True,
        sort_keys=False,
        width=float("inf"),
    )
    return text.strip()[1:-1]


def _default(default: object) -> str:
    match default:
        case None | ():
            return ""
        case float():
            return duration(default)
        case dict():
            return ", ".join(f"{name}: {value}" for name, value in default.items())
    return str(default)
