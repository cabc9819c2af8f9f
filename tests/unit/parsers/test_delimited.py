"""Delimited lines of any layout: the meaning of the options, and that both engines agree on every byte."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.delimited import Delimited
from parsers.errors import ParserOptionError
from parsers.fields.checks import Check
from parsers.idc_access_log import IdcAccessLog
from parsers.testing import batch, outcomes

ENGINES = ("compiled", "plain")
IDC = [IdcAccessLog(engine=engine) for engine in ENGINES]


def parse(options: Mapping[str, Any], *lines: bytes | None) -> list[object]:
    """Parse with these options; return the results for the lines, on which both engines must agree."""
    compiled, plain = (
        outcomes(Delimited(**options, engine=engine).parse(batch(lines)), len(lines)) for engine in ENGINES
    )
    assert compiled == plain
    return list(compiled)


# The meaning of the options -------------------------------------------------------------------------------------------


def test_without_a_marker_the_separator_alone_splits() -> None:
    """Lines are split at each separator, and none is rejected as `no_marker`."""
    options = {"fields": ["a", "b"], "output": "{b}|{a}"}

    assert [b"2|1", ("field_count", "the line has 1 field, not 2"), b"|"] == parse(options, b"1,2", b"1;2", b",\r\n")


def test_a_marker_that_overlaps_itself() -> None:
    """The opening and closing markers do not overlap, and separators are found from the left."""
    options = {"fields": ["a", "b"], "output": "{a}|{b}", "marker": "aa", "separator": "a"}

    found = parse(options, b"aaa", b"aaaa", b"aa1aaaaa2aa", b"aaaaaaaaa", b"aaaaaaaaaa")

    assert [b"1|2", b"|", b"|a"] == found[2:]
    assert [found[0][0], found[1][0]] == ["no_marker", "field_count"]  # type: ignore[index]


def test_long_and_short_separators() -> None:
    """Separators of any length split a line, also across a block of 64 bytes."""
    for size in (1, 2, 7, 8, 9, 15, 16, 17, 40, 70):
        separator = bytes(range(0x21, 0x25)) * 20
        options = {"fields": ["a", "b", "c"], "output": "{a}|{b}|{c}", "separator": separator[:size]}
        for width in (0, 1, 20, 49, 63, 64, 65, 130):
            fields = [b"x" * width, b"y" * 3, b"z" * width]

            assert [b"|".join(fields)] == parse(options, separator[:size].join(fields))


def test_unchecked_fields_are_written_as_they_are() -> None:
    """A field without a check keeps its blanks, and rejects the line if it would break the output."""
    options = {"fields": ["a", "b"], "output": "{a}|{b}"}

    found = parse(options, b" 1\x20,", b"\t,2", b"1|,2", b"\xff,2", b"1,\xe4\xb8\xad")

    assert [b" 1 |", b"1|\xe4\xb8\xad"] == [found[0], found[4]]
    assert [one[0] for one in found[1:4]] == ["illegal_character"] * 3  # type: ignore[index]


def test_an_unused_field_may_hold_anything() -> None:
    """A field that is not in the output cannot break it."""
    assert [b"1"] == parse({"fields": ["a", "b"], "output": "{a}"}, b"1,|\x00\xff")


def test_the_output_separator_is_escaped() -> None:
    """Another output separator is escaped, and `|` is then an ordinary character."""
    options = {"fields": ["a", "b"], "output": "{{ {a};{b} }}", "output_separator": ";", "escape": ["b"]}

    assert [b"{ 1;x%3By|z }"] == parse(options, b"1,x;y|z")


def test_an_escaped_field_is_not_trimmed() -> None:
    """A field that is both checked and escaped keeps its blanks, which count as text."""
    options = {"fields": ["a"], "output": "{a}", "checks": {"a": "not-empty"}, "escape": ["a"]}

    assert [b" \xe4\xb8\xad%7C", b" ", ("a", "a is empty")] == parse(
        options | {"marker": "'"}, b"' \xe4\xb8\xad|'", b"' '", b"''"
    )


def test_checks_apply_in_their_own_order() -> None:
    """The first failed check is the reason, in the order of the checks, not of the fields."""
    options = {"fields": ["a", "b"], "output": "{a}", "checks": {"b": "port", "a": "ip"}}

    assert [("b", "b is 'y', not a port (0 to 65535)")] == parse(options, b"x,y")
    assert Delimited(**options).reasons == ("empty", "no_marker", "field_count", "b", "a", "illegal_character")  # type: ignore[arg-type]


# Wrong options --------------------------------------------------------------------------------------------------------

GOOD = {"fields": ["a", "b"], "output": "{a}|{b}"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"marker": 7}, "marker must be text, not 7"),
        ({"marker": "\n"}, "marker must not contain a line ending"),
        ({"separator": ""}, "separator must not be empty"),
        ({"output": None}, "output must be text"),
        ({"output": "x"}, "names no field"),
        ({"output": "{a}|{c}"}, "output: no field 'c'; known: a, b"),
        ({"output": "{a!r}|{b}"}, "without '!' or ':'"),
        ({"output": "{a|{b}"}, "output: "),
        ({"output": "{a}\n|{b}"}, "control characters"),
        ({"output": "{a},{b}"}, "output does not contain '|'"),
        ({"output_separator": "||"}, "one ASCII character"),
        ({"output_separator": "%", "output": "{a}%{b}"}, "cannot be escaped"),
        (
            {"output_separator": ":", "output": "{a}:{b}", "checks": {"b": "ip"}},
            "also occurs in IP addresses such as b",
        ),
        ({"fields": "a,b"}, "fields must be a list of names"),
        ({"fields": ["a", "A"]}, "'A' is not a name"),
        ({"fields": ["a", "b", "a"]}, "a named more than once"),
        ({"checks": ["a"]}, "checks must map a field to a check"),
        ({"checks": {"a": "prot"}}, "no check 'prot'; did you mean 'port'?"),
        ({"checks": {"a": ["port"]}}, "no check ['port']"),
        ({"checks": {"aa": "port"}}, "checks: no field 'aa'; did you mean 'a'?"),
        ({"fields": ["empty"], "output": "{empty}", "checks": {"empty": "port"}}, "a reserved reason code"),
        ({"escape": "a"}, "escape must be a list of fields"),
        ({"escape": ["z"]}, "escape: no field 'z'"),
        ({"escape": ["a"], "checks": {"a": "port"}}, "it never needs escaping"),
        ({"engine": "fast"}, "engine must be auto, compiled or plain"),
    ],
)
def test_a_wrong_option_is_named(wrong: dict[str, object], message: str) -> None:
    """The error names the option and the mistake."""
    with pytest.raises(ParserOptionError) as error:
        Delimited(**GOOD | wrong)  # type: ignore[arg-type]

    assert message in str(error.value)


def test_every_wrong_option_is_named_at_once() -> None:
    with pytest.raises(ParserOptionError) as error:
        Delimited(fields=["a"], output="{b}", checks={"c": "x"}, escape=["d"])

    assert all(f"'{name}'" in str(error.value) for name in "bcdx")


# Both engines agree ---------------------------------------------------------------------------------------------------

POOLS = {
    "houseid": [b"238", b" 7\t", b"", b"\xe5\xb9\xbf", b"a|b", b"\xff"],
    "gathertime": [
        b"20171112132902",
        b"20240229235959",
        b"20230229000000",
        b"00000101000000",
        b" 20171112132902",
        b"2017",
    ],
    "srcip": [b"1.2.3.4", b"::1", b"255.255.255.256", b"01.2.3.4", b"fe80::1%e", b"1::2::3"],
    "destip": [b"0.0.0.0", b"1:2:3:4:5:6:7::", b"1.2.3", b"::ffff:9.9.9.9", b":::"],
    "srcport": [b"0", b"65535", b"65536", b"00000000080", b"", b"8 0", b"\xd9\xa1"],
    "destport": [b"80", b"9" * 30, b"-1"],
    "url": [
        b"",
        b"http://a/b|c",
        b"\xb9\xe3\xd6\xdd",
        "中文😀".encode() * 9,
        b"\x00\x7f%",
        b"<<<!>>",
        b"x" * 70 + b"\xe4\xb8",
    ],
    "title": [b"", b",", b"<<<!>>>", b"<<<", b">>>,<<<"],
}


def mutated(line: Callable[..., bytes], seed: int) -> bytes:
    """Draw realistic lines, some of them damaged."""
    chance = random.Random(seed)
    names = chance.sample(sorted(POOLS), chance.randint(0, 3))
    value = bytearray(line(**{name: chance.choice(POOLS[name]) for name in names}))
    for _ in range(chance.choice([0, 0, 1, 2])):
        at = chance.randrange(len(value))
        piece = chance.choice([b"<<<!>>>", b",", b"|", b"\xff", b"\r", b" ", bytes([chance.randrange(256)])])
        value[at : at + chance.choice([0, 1, 7])] = piece
    return bytes(value) + chance.choice([b"", b"", b"\n", b"\r\n"])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_engines_agree_on_damaged_lines(line: Callable[..., bytes], seed: int) -> None:
    """The kernel and plain Python give the same values, reasons and details for realistic lines."""
    lines = [mutated(line, seed + i) for i in range(40)]

    compiled, plain = (outcomes(parser.parse(batch(lines)), len(lines)) for parser in IDC)

    assert compiled == plain


NAMES = ["a", "b", "c", "d"]
TEXT = st.text(alphabet="<>,!a", max_size=9)


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, object]:
    """Draw valid options."""
    fields = NAMES[: draw(st.integers(1, 4))]
    escape = draw(st.lists(st.sampled_from(fields), unique=True))
    checks = {
        name: draw(st.sampled_from([Check.NOT_EMPTY] if name in escape else [*Check]))
        for name in draw(st.lists(st.sampled_from(fields), unique=True))
    }
    written = draw(st.lists(st.sampled_from(fields), min_size=1, max_size=6))
    return {
        "marker": draw(TEXT),
        "separator": draw(TEXT.filter(bool)),
        "fields": fields,
        "checks": checks,
        "escape": escape,
        "output": "|".join(f"{{{name}}}" for name in written),
    }


VALUES = st.lists(
    st.sampled_from([b"", b"1.2.3.4", b"::1", b"80", b"20171112132902", b" ", b"\t7 ", b"|"])
    | st.binary(max_size=12)
    | TEXT.map(str.encode),
    max_size=5,
)


@settings(max_examples=250, deadline=None)
@given(options=layouts(), rows=st.lists(VALUES, max_size=6))
def test_engines_agree_on_any_layout(options: dict[str, object], rows: list[list[bytes]]) -> None:
    marker, separator = str(options["marker"]).encode(), str(options["separator"]).encode()

    parse(options, *(marker + (marker + separator + marker).join(row) + marker for row in rows))


@settings(max_examples=125, deadline=None)
@given(rows=st.lists(st.binary(max_size=200), max_size=5))
def test_engines_agree_on_any_bytes(rows: list[bytes]) -> None:
    """Including long runs of special bytes."""
    parse({"fields": ["a"], "output": "{a}|{a}", "escape": ["a"]}, *rows)
    parse({"fields": ["a"], "output": "{a}", "separator": "\t"}, *rows)
