"""
Turns pydantic's errors about single keys into plain sentences with each key's origin.

Values of `kafka`, `sink.kafka`, `spark` and `offsets` are never quoted, because they may be secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.config.model import PROPERTY_SECTIONS, Config, declared, duration, is_property, keys_of, path_of
from app.config.sources import Keys, Tree, full_name, origin_of
from parsers.errors import nearest

_KEYS = dict(declared())
# The values of simple types; None is a single property, which has no declared type.
_WORDS: dict[object, str] = {
    float: "a duration such as 500ms, 30s, 5m or 1h",
    float | None: "a share between 0 and 1, such as 0.5",
    int: "a whole number",
    bool: "true or false",
    None: "text, a number, true or false",
}


def sentences(error: ValidationError, tree: Tree) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_sentence(detail, tree) for detail in error.errors()))


def _sentence(detail: ErrorDetails, tree: Tree) -> str:
    keys = _declared_part(detail["loc"])
    name = _shown(keys)
    kind = detail["type"] if keys == detail["loc"] else "part"
    if kind == "missing" and keys == path_of(name):
        return tree.missing(name)
    origin = origin_of(keys, tree.origins)
    return f"{name}{_predicate(kind, detail.get('ctx', {}), keys, tree)}{f' ({origin})' if origin else ''}"


def _shown(keys: Keys) -> str:
    """Return the name of a key; of one in a list as `parser.samples[0].line`."""
    parts = (
        f"[{key}]" if isinstance(key, int) and _holds_sections(_annotation(keys[:depth])) else f".{key}"
        for depth, key in enumerate(keys)
    )
    return "".join(parts).removeprefix(".")


def _declared_part(location: tuple[int | str, ...]) -> Keys:
    """Drop what follows a key in pydantic's location, such as the index of a name in a list, or a union member."""
    for depth in range(1, len(location)):
        declared = _annotation(location[:depth])
        has_parts = keys_of(declared) or _holds_sections(declared) or get_origin(declared) is dict
        if declared is not None and not has_parts:
            return location[:depth]
    return location


def _predicate(kind: str, context: dict[str, Any], keys: Keys, tree: Tree) -> str:
    """Return what to say after the key's name; the kind is pydantic's, or `part` if a part of the value is wrong."""
    value = _value(tree, keys)
    match kind:
        case "extra_forbidden":
            return f": unknown key; {_hint(keys)}"
        case "invalid_key":
            return ": a key must be text; put it in quotes"
        case "missing":
            return " is missing"
        case "value_error":
            return f" {context['error']}"
    if value is None or value == "":
        return " is empty"
    return f" must be {_requirement(kind, context, _annotation(keys))}{_not(keys, value)}"


def _annotation(keys: Keys) -> object:
    """Return the declared type of a key, or of an item of a list of sections; None for a property or an option."""
    found: object = Config
    for key in keys:
        if isinstance(key, int) and _holds_sections(found):
            found = get_args(found)[0]
        elif (field := keys_of(found).get(str(key))) is not None:
            found = field.annotation
        else:
            return None
    return found


def _requirement(kind: str, context: dict[str, Any], annotation: object) -> str:
    if kind in ("model_type", "dict_type"):
        return "a section with keys and values"
    for limit, words in (("ge", "at least"), ("le", "at most")):
        if limit in context and annotation in (float, int):
            return f"{words} {duration(context[limit]) if annotation is float else context[limit]}"
    return _form(annotation)


def _value(tree: Tree, keys: Keys) -> object:
    value: Any = tree.values
    for key in keys:
        if isinstance(value, list) and isinstance(key, int):
            value = value[key]
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _not(keys: Keys, value: object) -> str:
    """Quote the value as it was written, unless it may be secret."""
    if keys in PROPERTY_SECTIONS or is_property(keys) or keys[0] == "offsets":  # it may hold a password
        return ""
    if isinstance(value, str):
        is_duration = _annotation(keys) is float and value[:1].isdigit()
        return f", not {value if is_duration else repr(value)}"
    return f", not {yaml.safe_dump([value], default_flow_style=True, width=float('inf')).strip()[1:-1]}"


def _form(annotation: object) -> str:
    if annotation in _WORDS:
        return _WORDS[annotation]
    if _holds_sections(annotation):
        keys = ", ".join(f"{key}: ..." for key in keys_of(get_args(annotation)[0]))
        return f"a list of sections, such as [{{{keys}}}]"
    if get_origin(annotation) is tuple:
        return "a list of names, such as [a, b]"
    if choices := [*_choices(annotation)]:
        *others, last = choices
        return f"{', '.join(others)} or {last}" if others else last
    return "text"


def _holds_sections(annotation: object) -> bool:
    return get_origin(annotation) is tuple and bool(keys_of(get_args(annotation)[0]))


def _choices(annotation: object) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _choices(member)
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (str(member.value) for member in annotation)
    elif keys := keys_of(annotation):
        yield f"{{{', '.join(f'{name}: {field.description}' for name, field in keys.items())}}}"


def _hint(keys: Keys) -> str:
    *sections, wrong = keys
    known = list(keys_of(_annotation(tuple(sections))))
    in_a_list = any(isinstance(key, int) for key in sections)
    if not in_a_list and (near := nearest(full_name(keys), _KEYS, 0.8)):
        return f"did you mean {near}?"
    if near := nearest(str(wrong), known, 0.5):
        return f"did you mean {_shown((*sections, near))}?"
    return f"known here: {', '.join(known)}"
