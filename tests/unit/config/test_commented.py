"""A configuration with comments is YAML, and its comments are the declared meanings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from app.config import commented
from tests.support.reference import keys

TEXTS = st.text() | st.sampled_from(["2026", "yes", "a: b", "# c", "\t", "\x85", "{a}|{b}", "'", "- x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(values=st.dictionaries(TEXTS, VALUES, max_size=4))
def test_it_is_read_as_it_was(values: Mapping[str, Any]) -> None:
    """Whatever the keys and values are."""
    assert values == (yaml.safe_load(commented(values)) or {})


def test_the_comments_are_the_declared_meanings() -> None:
    """Those of the documentation, and of the parser's options; a section has none."""
    values = {
        "group.id": "g",
        "sink": {"topic": "t"},
        "parser": {"name": "json", "fields": ["a"], "checks": {"a": "ip"}},
    }
    meanings = {key: meaning for key, _, meaning in keys()}

    assert [
        f"# {meanings['group.id']}",
        "group.id: g",
        "sink:",
        f"  # {meanings['sink.topic']}",
        "  topic: t",
        "parser:",
        f"  # {meanings['parser.name']}",
        "  name: json",
        "  # which they are",
        "  fields: [a]",
        "  checks:",
        "    a: ip",
    ] == commented(values, {"fields": "which they are", "output": "unused"}).splitlines()
