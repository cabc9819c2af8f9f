"""How values may be written: durations, lists of names, and librdkafka's and Spark's properties."""

from __future__ import annotations

import contextlib
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from app.times import seconds_of


def _no_boolean(value: object) -> object:
    """Refuse YAML's `off` and `on`, which pydantic would take for 0 and 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("boolean", "is no number")
    return value


def _seconds(value: object) -> object:
    """Read `500ms`, `30s`, `5m`, `1h` or a number of seconds."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return seconds_of(value)
    return _no_boolean(value)


def _names(value: object) -> object:
    """Read `a,b` as a list of two."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _properties(value: object) -> object:
    """Turn YAML's booleans and numbers into the text that librdkafka and Spark expect; None is an empty section."""
    if isinstance(value, dict):
        return {str(name): _text(setting) for name, setting in value.items()}
    return {} if value is None else value


def _text(value: object) -> object:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
    return value


Number = BeforeValidator(_no_boolean)
Whole = Annotated[int, Number]
Seconds = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=float | str)]
Names = Annotated[
    tuple[str, ...], BeforeValidator(_names, json_schema_input_type=list[str] | str), AfterValidator(_once)
]
Properties = Annotated[
    dict[str, str], BeforeValidator(_properties, json_schema_input_type=dict[str, str | int | float | bool] | None)
]
