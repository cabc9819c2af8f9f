"""The demo's recipe makes the expected lines."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import fastavro
import pytest

from app.demo.lines import GeneratedRecord, Recipe
from app.demo.vocabulary import GATHERTIME, MARK, SEPARATOR
from tests.data.make import EVENT

RAW_REASONS = {
    *("empty", "no_marker", "field_count", "houseid", "gathertime"),
    *("srcip", "destip", "srcport", "destport", "illegal_character"),
}


def make(recipe: Recipe) -> list[GeneratedRecord]:
    """Make all records of a recipe."""
    return [line for partition in range(recipe.partitions) for line in recipe.lines(partition)]


@pytest.fixture(scope="module")
def raw() -> list[GeneratedRecord]:
    """Return raw lines of which every tenth is bad."""
    return make(Recipe(partitions=3, count=30_000, bad=0.1))


@pytest.fixture(scope="module")
def flume() -> list[GeneratedRecord]:
    """Return lines that are all in Flume's envelope."""
    return make(Recipe(partitions=2, count=20_000, bad=0.1, enveloped=1.0))


def event(value: bytes) -> dict[str, Any] | None:
    """Return the fields of an AvroFlumeEvent, or None if the value is not one."""
    try:
        found: Any = fastavro.schemaless_reader(io.BytesIO(value), EVENT)
    except Exception:  # noqa: BLE001 - fastavro raises many kinds of errors
        return None
    return dict(found)


def unwrapped(value: bytes) -> bytes | None:
    """Return the body of an AvroFlumeEvent, or None if the value is not one."""
    return (event(value) or {}).get("body")


def test_same_recipe_same_lines(raw: list[GeneratedRecord]) -> None:
    """The same recipe makes the same records, another seed makes others."""
    assert raw == make(Recipe(partitions=3, count=30_000, bad=0.1))
    assert raw != make(Recipe(partitions=3, count=30_000, bad=0.1, seed=2))


def test_count_is_spread_evenly() -> None:
    """Every record of the count is in exactly one partition, and no partition has more than one record above another."""
    recipe = Recipe(partitions=3, count=10_001)

    assert [3334, 3334, 3333] == [recipe.size(partition) for partition in range(3)]
    assert [3334, 3334, 3333] == [len(list(recipe.lines(partition))) for partition in range(3)]


def test_keys_hold_partition_and_sequence() -> None:
    """Keys are unique and in order: partition, then a sequence number without gaps, with the timestamp in step."""
    recipe = Recipe(partitions=2, count=40_000)

    for partition in range(2):
        lines = list(recipe.lines(partition))
        assert [b"%d:%09d" % (partition, sequence) for sequence in range(20_000)] == [line.key for line in lines]
        assert [recipe.first_timestamp + sequence for sequence in range(20_000)] == [line.timestamp for line in lines]


def test_every_reason_appears(raw: list[GeneratedRecord], flume: list[GeneratedRecord]) -> None:
    """Every reason of a bad line occurs; a broken envelope occurs only if all lines are in envelopes."""
    assert {None} | RAW_REASONS == {line.reason for line in raw}
    assert {None, "envelope"} | RAW_REASONS == {line.reason for line in flume}


def test_bad_fraction(raw: list[GeneratedRecord]) -> None:
    """About the configured fraction of lines is bad, and none at zero."""
    assert 0.09 < sum(line.reason is not None for line in raw) / len(raw) < 0.11
    assert {None} == {line.reason for line in make(Recipe(partitions=1, count=10_000, bad=0.0))}


def test_a_line_has_either_a_result_or_a_reason(raw: list[GeneratedRecord], flume: list[GeneratedRecord]) -> None:
    """A record is expected to become a cleansed line or a dead letter, and never both or neither."""
    assert all((line.expected is None) != (line.reason is None) for line in raw + flume)


def test_expected_line_is_utf8_with_four_bars(raw: list[GeneratedRecord]) -> None:
    """A cleansed line is valid UTF-8 with exactly four bars and no control character."""
    expected = [line.expected.decode() for line in raw if line.expected is not None]

    assert {4} == {text.count("|") for text in expected}
    assert not any(ord(character) < 0x20 or character == "\x7f" for text in expected for character in text)


def test_good_lines_have_fifteen_fields(raw: list[GeneratedRecord]) -> None:
    """A good line begins and ends with the marker, and the whole separator cuts it into 15 fields."""
    good = [line.value.rstrip(b"\r\n") for line in raw if line.value is not None and line.reason is None]

    assert all(value.startswith(MARK) and value.endswith(MARK) for value in good)
    assert {15} == {value.count(SEPARATOR) + 1 for value in good}


def test_lines_resemble_real_ones(raw: list[GeneratedRecord]) -> None:
    """Lines are as long and as odd as real ones: commas, bars, CRLF, IPv6, bytes that are not UTF-8."""
    good = [(line.value, line.expected) for line in raw if line.value and line.expected]
    seen = Counter[str]()
    for value, expected in good:
        fields = value.split(SEPARATOR)
        seen["comma"] += b"," in fields[11] + fields[13]
        seen["bar"] += b"|" in fields[11] + fields[13]
        seen["crlf"] += value.endswith(b"\r\n")
        seen["usual time"] += b"201711" in fields[GATHERTIME]
        seen["ipv6"] += expected.count(b"]:") > 0
        seen["escaped"] += b"%" in expected
        seen["not utf-8"] += b"\xff" in value.decode("utf-8", "replace").replace("\ufffd", "\xff").encode(
            "latin-1", "ignore"
        )

    assert 0.98 < seen["usual time"] / len(good) < 1
    assert 325 < sum(len(value) for value, _ in good) / len(good) < 360
    assert all(seen[oddity] > len(good) / 200 for oddity in ("comma", "bar", "crlf", "ipv6", "escaped", "not utf-8"))


def test_envelopes_decode(flume: list[GeneratedRecord]) -> None:
    """An enveloped line decodes as an AvroFlumeEvent unless its reason is the envelope."""
    enveloped = [line for line in flume if line.value is not None]

    assert all((unwrapped(line.value or b"") is None) == (line.reason == "envelope") for line in enveloped)


def test_some_events_of_flume_have_a_key(flume: list[GeneratedRecord]) -> None:
    names = {frozenset(found["headers"]) for line in flume if (found := event(line.value or b""))}

    assert {frozenset({"host", "timestamp"}), frozenset({"host", "timestamp", "key"})} == names


def test_enveloped_body_is_the_raw_line(raw: list[GeneratedRecord]) -> None:
    """In a mixed topic, each body is the line that the same recipe makes without envelopes."""
    mixed = make(Recipe(partitions=3, count=30_000, bad=0.1, enveloped=0.5))
    wrapped = [(one, other) for one, other in zip(raw, mixed, strict=True) if one.value != other.value]

    assert 0.45 < len(wrapped) / len(raw) < 0.55
    assert all(unwrapped(other.value or b"") == one.value for one, other in wrapped)
    assert [(line.expected, line.reason) for line in raw] == [(line.expected, line.reason) for line in mixed]
