"""Filters: which cleansed lines are dropped, and what is refused in the configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.csv_lines import CsvLines
from parsers.errors import ParserOptionError
from parsers.filters import LineFilter
from parsers.idc_access_log import IdcAccessLog
from tests.independent import cleansed

PARSER = IdcAccessLog()
LINES = [
    b"238|20171112132902|58.223.1.112:59948|202.102.92.18:80|http://health/a",
    b"239|20171112132902|10.0.0.1:59948|202.102.92.18:80|http://other/health",
    b"",
]


def dropped(field: str, check: Mapping[str, object], *, keeps: bool = False) -> list[bool]:
    one = LineFilter(PARSER, field, check, keeps=keeps)
    return [bool(each) for each in one.drops(pa.array(LINES, pa.binary()))]


@pytest.mark.parametrize(
    ("field", "check", "passes"),
    [
        ("url", {"matches": "^http://health/"}, [True, False, False]),
        ("houseid", {"one-of": ["239", "240"]}, [False, True, False]),
        ("srcip", {"network": "10.0.0.0/8"}, [False, True, False]),
        ("gathertime", {"time": "%Y%m%d%H%M%S"}, [True, True, False]),
        ("url", {"matches": ""}, [True, True, False]),
    ],
)
def test_drop_and_keep_are_opposites(field: str, check: dict[str, object], passes: list[bool]) -> None:
    """A line without the field passes no check."""
    assert passes == dropped(field, check)
    assert [not each for each in passes] == dropped(field, check, keeps=True)


def test_an_address_in_brackets_is_in_its_network() -> None:
    """A text has an IPv6 address in brackets, which other checks see; those of other lines stay as they are."""
    lines = [b"1|2|3|%b:80|u" % each for each in (b"[2001:db8::1]", b"[2001:db9::1]", b"10.0.0.1")]
    batch = pa.array([*lines, b""], pa.binary())

    def passed(check: Mapping[str, object]) -> list[bool]:
        return [not each for each in LineFilter(PARSER, "destip", check, keeps=True).drops(batch)]

    assert [True, False, False, False] == passed({"network": "2001:db8::/32"})
    assert [False, True, True, False] == passed({"network": ["2001:db9::/32", "10.0.0.0/8"]})
    assert [True, False, False, False] == passed({"one-of": ["[2001:db8::1]", "2001:db9::1"]})


@pytest.mark.parametrize(
    ("check", "passes"),
    [
        ({"one-of": ['a"b', "C:\\x", "é"]}, [True, True, False, True, False, False]),
        ({"matches": "t$"}, [False, False, False, False, True, False]),
        ({"matches": r"\t$"}, [False, False, True, False, False, False]),
        ({"matches": r"\\"}, [False, True, False, False, False, False]),
    ],
)
def test_a_check_sees_a_member_without_escapes(check: dict[str, object], passes: list[bool]) -> None:
    """Lines that are JSON have escapes, which are no part of the field."""
    parser = CsvLines(fields=["a", "b"], output=["b", "a"], output_format="json")
    lines = [b'"a""b",\\', b"C:\\x,", b"a\t,t", "é,".encode(), b"t,", b","]
    values = parser.parse(pa.array(lines, pa.binary())).values
    batch = pa.array([*values.to_pylist(), b"{}"], pa.binary())

    assert [*passes, False] == LineFilter(parser, "a", check, keeps=False).drops(batch).tolist()


@given(st.lists(st.integers(0, 99), max_size=20), st.integers(0, 9), st.integers(0, 3))
def test_a_batch_is_filtered_as_its_lines_are(numbers: list[int], digit: int, skipped: int) -> None:
    """Also a part of an array."""
    lines = [cleansed(number) for number in numbers]
    batch = pa.array([b"x"] * skipped + lines, pa.binary()).slice(skipped)

    found = LineFilter(PARSER, "url", {"matches": f"{digit}"}, keeps=False).drops(batch)

    assert [bool(re.search(b"%d" % digit, line.split(b"|")[4])) for line in lines] == [bool(each) for each in found]


@pytest.mark.parametrize(
    ("field", "check", "said"),
    [
        ("ulr", {"matches": "x"}, "no field 'ulr'; did you mean 'url'"),
        ("url", {"match": "x"}, "no check 'match' for a filter; did you mean 'matches'"),
        ("url", {"not-empty": True}, "no check 'not-empty' for a filter"),
        ("url", {}, "write one check for the field: matches, network, one-of, time"),
        ("url", {"matches": "x", "one-of": ["x"]}, "write one check for the field"),
        ("url", {"matches": "("}, "missing )"),
    ],
)
def test_what_cannot_be_a_filter(field: str, check: dict[str, object], said: str) -> None:
    """The message names the field or the check, and the nearest one."""
    with pytest.raises(ParserOptionError, match=re.escape(said)):
        LineFilter(PARSER, field, check, keeps=False)
