"""The JSON schema accepts the same single keys as the configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from app.config import schema
from tests.support.reference import keys
from tests.unit.config.good import GOOD

ROOT = Path(__file__).parents[3]
CHECKER = jsonschema.Draft202012Validator(schema())


def test_the_schema_is_one() -> None:
    """The schema is valid, so editors can read it."""
    jsonschema.Draft202012Validator.check_schema(schema())


def test_every_key_is_in_it_with_its_meaning() -> None:
    """Editors show the documented descriptions."""
    meanings = {name: meaning for name, _, meaning in keys()}

    assert meanings == {name: found["description"] for name in meanings if (found := _found(name))}


def _found(name: str) -> dict[str, Any]:
    """Return the schema of a key, following references between sections."""
    at, rest = schema(), name
    while rest:
        key = next(
            each for each in sorted(at["properties"], key=len, reverse=True) if f"{rest}.".startswith(f"{each}.")
        )
        at, rest = at["properties"][key], rest[len(key) + 1 :]
        if "$ref" in at and rest:
            at = schema()["$defs"][at["$ref"].rpartition("/")[2]]
    return at


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"commit.interval": "500ms", "round.interval": 10},
        {"source": {"topics": "a,b"}, "kafka": {"linger.ms": 5, "enable.ssl.certificate.verification": True}},
        {"starting.offsets": {"by.duration": "2h"}},
        {"lineage.headers": True, "kafka.linger.ms": 5, "dead.letters.breaker": {"ratio": 0.5}},
        {"starting.offsets": "latest", "parser": {"name": "delimited", "fields": ["a"], "separator": ","}},
        {"offsets": {"mirrors": [{"name": "redis", "url": "redis://cache"}]}},
        {"parser": {"samples": [{"line": "", "reason": "empty"}]}},
        {"dead.letters": {"topic": "x", "breaker.ratio": 0.5}, "offsets": {"store.name": "none"}},
        {"sink": {"topic": "x", "kafka.linger.ms": 5}, "starting.offsets.by.duration": "2h"},
    ],
    ids=str,
)
def test_what_is_right_is_taken(more: dict[str, Any]) -> None:
    """Durations as text or numbers, lists as text, numbers as properties, plugin options, dots between sections."""
    assert [] == [error.message for error in CHECKER.iter_errors(GOOD | more)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"sorce": 1},
        {"source": {"topics.patern": "x"}},
        {"out.of.range": "perhaps"},
        {"sink": {"topik": "x"}},
        {"starting.offsets": {"timestamp": -1}},
    ],
    ids=str,
)
def test_what_is_wrong_is_marked(wrong: dict[str, Any]) -> None:
    """A misspelt key and an invalid value are errors."""
    assert [error.message for error in CHECKER.iter_errors(GOOD | wrong)]


def test_the_example_in_the_readme_is_taken() -> None:
    """The example that users copy is valid."""
    (example,) = re.findall(r"```yaml\n(group\.id.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)

    assert [] == [error.message for error in CHECKER.iter_errors(yaml.safe_load(example))]
