"""The checks accept what the standard library accepts, on both engines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from ipaddress import AddressValueError, IPv4Address, IPv6Address

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parsers.delimited import Delimited
from parsers.fields.checks import Check
from parsers.testing import batch

PARSERS = {
    check: [
        Delimited(marker="'", fields=["x"], checks={"x": check}, output="{x}", engine=engine)
        for engine in ("compiled", "plain")
    ]
    for check in Check
}


def accepted(check: Check, values: Sequence[str]) -> list[bool]:
    """Return which values pass the check; both engines must agree."""
    lines = batch([f"'{value}'".encode() for value in values])
    compiled, plain = (parser.parse(lines).rows.tolist() for parser in PARSERS[check])
    assert compiled == plain
    return [row in compiled for row in range(len(values))]


def is_address(value: str) -> bool:
    try:
        (IPv6Address if ":" in value else IPv4Address)(value)
    except AddressValueError:
        return False
    return True


GROUP = st.sampled_from(
    ["", "", "0", "1", "fF", "abc", "0000", "12345", "g", "1.2.3.4", "1.2.3.04", "256.1.1.1", "1.2.3"]
)
OCTET = st.sampled_from(["", "0", "00", "7", "07", "99", "199", "249", "255", "256", "300", "1111", "a"])


@settings(max_examples=500, deadline=None)
@given(
    groups=st.lists(GROUP, min_size=1, max_size=10), loose=st.text(alphabet="0123456789abcdefABCDEFg:.", max_size=46)
)
@example(groups=["1", "2", "3", "4", "5", "6", "7", "", ""], loose="::")
@example(groups=["", "", "2", "3", "4", "5", "6", "7", "8"], loose=":::")
@example(groups=["1", "2", "3", "4", "5", "6", "1.2.3.4"], loose="1:")
@example(groups=["1111"] * 6 + ["255.255.255.255"], loose=":1")
def test_ipv6_is_what_ipaddress_accepts(groups: list[str], loose: str) -> None:
    """An address with a colon passes exactly if `ipaddress.IPv6Address` accepts it, apart from zones."""
    values = [":".join(groups), "::" + ":".join(groups), ":" + loose, loose + "::1"]

    assert [is_address(value) for value in values] == accepted(Check.IP, values)


@settings(max_examples=312, deadline=None)
@given(octets=st.lists(OCTET, min_size=3, max_size=5), value=st.integers(0, 2**32 - 1))
def test_ipv4_is_what_ipaddress_accepts(octets: list[str], value: int) -> None:
    """An address without a colon passes exactly if `ipaddress.IPv4Address` accepts it."""
    values = [".".join(octets), str(IPv4Address(value)), ".".join(octets[:2] * 2)]

    assert [is_address(value) for value in values] == accepted(Check.IP, values)


def test_zones_and_other_digits_are_not_addresses() -> None:
    """Zones, prefixes, ports, brackets and non-ASCII digits are refused."""
    values = [
        "fe80::1%eth0",
        "::1/128",
        "1.2.3.4/8",
        "[::1]",
        "1.2.3.4:80",
        "\u0661.2.3.4",
        "::\u0661",
        "1.2.3.4.",
        ".1.2.3.4",
        "",
        "::1:",
    ]

    assert [False] * len(values) == accepted(Check.IP, values)


def is_datetime(value: str) -> bool:
    try:
        datetime.strptime(value, "%Y%m%d%H%M%S")  # noqa: DTZ007 - the log names no zone
    except ValueError:
        return False
    return True


@settings(max_examples=312, deadline=None)
@given(
    year=st.sampled_from([0, 1, 4, 100, 400, 1899, 1900, 1999, 2000, 2023, 2024, 2100, 9999]),
    month=st.integers(0, 13),
    day=st.sampled_from([0, 1, 28, 29, 30, 31, 32]),
    time=st.tuples(st.sampled_from([0, 23, 24]), st.sampled_from([0, 59, 60]), st.sampled_from([0, 59, 60, 61])),
)
def test_datetime_is_what_strptime_accepts(year: int, month: int, day: int, time: tuple[int, int, int]) -> None:
    """Fourteen digits pass exactly if `strptime` accepts them."""
    value = f"{year:04}{month:02}{day:02}{time[0]:02}{time[1]:02}{time[2]:02}"

    assert [is_datetime(value)] == accepted(Check.DATETIME, [value])


def test_every_day_of_a_calendar() -> None:
    """Exactly the days of four hundred years that `strptime` accepts pass."""
    values = [
        f"{year:04}{month:02}{day:02}000000"
        for year in (1900, 2000, 2023, 2024)
        for month in range(14)
        for day in range(33)
    ]

    assert [is_datetime(value) for value in values] == accepted(Check.DATETIME, values)


@pytest.mark.parametrize(
    "value",
    ["2017111213290", "201711121329021", "2017111213290x", "2017 112132902", "+2017111213290", "٢0171112132902", ""],
)
def test_datetime_is_fourteen_ascii_digits(value: str) -> None:
    assert [False] == accepted(Check.DATETIME, [value])


def test_ports() -> None:
    """A port is a number from 0 to 65535 in ASCII digits, with any number of leading zeros."""
    good = ["0", "80", "65535", "00080", "0" * 40 + "1"]
    bad = ["", "65536", "100000", "99999999999999999999", "18446744073709551617", "-1", "+1", "1.0", "1 2", "0x1", "٨"]

    assert [True] * len(good) + [False] * len(bad) == accepted(Check.PORT, good + bad)


def test_not_empty() -> None:
    """A field of blanks and tabs is empty; any other text is not."""
    assert [True, True, False, False] == accepted(Check.NOT_EMPTY, ["a", " \u00a0", " \t ", ""])
