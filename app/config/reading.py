"""Reads the configuration: gathers the values, checks them, and lists every problem at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from app.config.model import Config, ParserChoice, ParserPart, Section, keys_of
from app.config.problems import sentences
from app.config.rules import Rule, broken
from app.config.sources import ENV_PREFIX, FILE, FILE_VARIABLE, Origins, Tree, gather
from app.errors import ConfigError

P = TypeVar("P", bound=Section)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The configuration, the origin of each key, and the file."""

    config: Config
    origins: Origins
    file: Path | None = None


def read(
    file: Path | None,
    assignments: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    more_rules: Iterable[Rule] = (),
) -> Loaded:
    """Read and check all sources. Raises ConfigError with every problem, not only the first."""
    tree = gather(file, assignments, os.environ if environ is None else environ)
    if not tree.is_given:
        said = f"there is none: name a file with -c or in {FILE_VARIABLE}, or write ./{FILE}, as winnow init does"
        raise ConfigError((said,))
    return Loaded(_checked_part(Config, tree, more_rules), tree.origins, file)


def read_parser(file: Path | None, assignments: Iterable[str] = (), rules: Iterable[Rule] = ()) -> ParserChoice:
    """Read and check only the parser's section, whatever else is wrong or missing. Raises as `read`."""
    tree = gather(file, assignments, os.environ)
    values = {key: value for key, value in tree.values.items() if key in keys_of(ParserPart)}
    return _checked_part(ParserPart, replace(tree, values=values), rules).parser


def _checked_part(model: type[P], tree: Tree, more_rules: Iterable[Rule]) -> P:
    relations = tuple(broken(tree, dict(_valid(tree.values, model)), more_rules))
    try:
        found = model.model_validate(tree.values)
    except ValidationError as error:
        raise ConfigError((*sentences(error, tree), *relations)) from None
    if relations:
        raise ConfigError(relations)
    return found


def load(file: Path | None, assignments: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> Config:
    return read(file, assignments, environ).config


def clear_environment() -> None:
    """Remove the configuration, which may hold secrets, from the environment that child processes inherit."""
    for name in [each for each in os.environ if each.startswith(ENV_PREFIX)]:
        del os.environ[name]


def _valid(values: Mapping[str, Any], model: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the full name and value of each valid key, whatever is wrong with the others."""
    for name, field in keys_of(model).items():
        if keys_of(field.annotation):
            section = values.get(name)
            if section is None or isinstance(section, Mapping):
                yield from _valid(section or {}, field.annotation, f"{prefix}{name}.")
        elif name in values:
            with contextlib.suppress(ValidationError):
                yield prefix + name, _checked(field, values[name])
        elif not field.is_required():
            yield prefix + name, field.get_default()


def _checked(field: FieldInfo, value: object) -> object:
    """Return a key's checked value; of a section of properties, only the valid ones."""
    adapter = TypeAdapter[object](field.rebuild_annotation())
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        if not (isinstance(value, Mapping) and get_origin(field.annotation) is dict):
            raise
        wrong = {detail["loc"][0] for detail in error.errors()}
        return adapter.validate_python({name: given for name, given in value.items() if str(name) not in wrong})
