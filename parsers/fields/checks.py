"""
The checks of fields. Some take a parameter: `{one-of: [GET, POST]}`.

Those without one are in both engines. Those with one look at the distinct values of a batch only: log lines repeat
their times, methods and networks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from parsers.errors import ParserOptionError, hint


class Check(StrEnum):
    """The checks without a parameter, in the order of their numbers in `parsers.compiled.kernels`."""

    NOT_EMPTY = "not-empty"
    DATETIME = "datetime"
    IP = "ip"
    PORT = "port"
    INTEGER = "integer"
    NUMBER = "number"


EXPECTED = {
    Check.NOT_EMPTY: "",
    Check.DATETIME: "not a date and time (14 digits: YYYYMMDDhhmmss)",
    Check.IP: "not an IPv4 or IPv6 address",
    Check.PORT: "not a port (0 to 65535)",
    Check.INTEGER: "not an integer",
    Check.NUMBER: "not a number",
}


class Test:
    """A check with a parameter. Both methods give the same answer for the same value."""

    expected: str
    """Follows a value in the detail of a reject."""

    def accepts(self, value: bytes) -> bool:
        raise NotImplementedError

    def accepted(self, values: pa.BinaryArray) -> pa.BooleanArray:
        """Return the answer for each value; there are no nulls. A value that is repeated is looked at once."""
        coded = values.dictionary_encode()
        accepts = pa.array([self.accepts(value) for value in coded.dictionary.to_pylist()], pa.bool_())
        return cast("pa.BooleanArray", accepts.take(coded.indices))


class OneOf(Test):
    """The value is one of a list."""

    def __init__(self, values: object) -> None:
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ParserOptionError(f"one-of must be a list of texts, not {values!r}: write {{one-of: [a, b]}}")
        # YAML reads no as false, and 1.10 as 1.1.
        if wrong := [each for each in values if isinstance(each, bool) or not isinstance(each, str | int)]:
            given = ", ".join(map(str, wrong))
            raise ParserOptionError(f"one-of takes texts, not {given}: quote them, as in {{one-of: ['no', '1.10']}}")
        self.expected = f"not one of {', '.join(map(str, values))}"
        self._values = {str(value).encode() for value in values}

    def accepts(self, value: bytes) -> bool:
        return value in self._values


# Of a character of several bytes, a class has each byte, a repetition repeats the last, and (?i) changes some.
_WIDE = r"[^\0-\x7f]"
_CUTS_CHARACTERS = re.compile(rf"(?s)\[\^?\]?(\[:\^?\w+:\]|[^\]])*{_WIDE}|{_WIDE}[*+?{{]|\(\?[a-zA-Z]*i.*{_WIDE}")


def refuse_cut_characters(pattern: str) -> None:
    """Raise ParserOptionError if the pattern, which is applied to bytes, means something else than it seems to."""
    if _CUTS_CHARACTERS.search(re.sub(r"\\.", "-", pattern)):
        raise ParserOptionError(f"{pattern} is applied to bytes: write (?:ä|ö)+, without (?i), rather than [äö]+")


class Matches(Test):
    """A part of the value matches a regular expression in RE2's syntax, applied to bytes."""

    def __init__(self, pattern: object) -> None:
        if not isinstance(pattern, str):
            raise ParserOptionError(f"matches must be a regular expression, not {pattern!r}: quote it")
        refuse_cut_characters(pattern)
        self.expected = f"which does not match {pattern}"
        self._pattern = pattern
        try:
            self.accepts(b"")
        except ValueError as error:
            raise ParserOptionError(f"matches: {error}") from error

    def accepts(self, value: bytes) -> bool:
        return bool(self.accepted(pa.array([value], pa.binary()))[0].as_py())

    def accepted(self, values: pa.BinaryArray) -> pa.BooleanArray:
        return pc.match_substring_regex(values, self._pattern)


# Python reads more of ISO 8601, such as weeks, and no lower-case z.
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:[0-5]\d)")


class Time(Test):
    """The value is a time in a format of Python's `strptime`, or `rfc3339`. A format with a zone requires the zone."""

    def __init__(self, form: object) -> None:
        if not isinstance(form, str) or (form != "rfc3339" and "%" not in form):
            raise ParserOptionError(f"time must be rfc3339 or a format such as '%d/%b/%Y:%H:%M:%S %z', not {form!r}")
        self.expected = f"not a time in the format {form}"
        # Without a year, strptime takes 1900, in which 29 February is no day.
        has_year = re.search("%[YyGcx]", form.replace("%%", ""))
        self._prefix, self._format = ("", form) if has_year else ("2000 ", f"%Y {form}")
        self._is_rfc3339 = form == "rfc3339"
        try:
            # Some mistakes show only with a time that has the format.
            text = datetime(2000, 2, 29, tzinfo=UTC).strftime(self._format)
            datetime.strptime(text, self._format)  # noqa: DTZ007  # the answer is not used
            has_zone = self._is_rfc3339 or "%z" in form
            self.characters = text.removeprefix(self._prefix) + ("-:.+" if has_zone else "")
            """What occurs in times of this format, beside other letters and digits."""
        except (ValueError, re.error) as error:
            raise ParserOptionError(f"time: {error}") from error

    def accepts(self, value: bytes) -> bool:
        try:
            text = value.decode("ascii")
            if self._is_rfc3339:
                return bool(_RFC3339.fullmatch(text) and datetime.fromisoformat(text.upper()))
            datetime.strptime(self._prefix + text, self._format)  # noqa: DTZ007
        except ValueError:
            return False
        return True


class Network(Test):
    """The value is an address in one of the networks, IPv4 or IPv6."""

    def __init__(self, networks: object) -> None:
        listed = [networks] if isinstance(networks, str) else networks
        if not isinstance(listed, Sequence) or not listed:
            msg = f"network must be a list of networks, not {networks!r}: write {{network: [10.0.0.0/8]}}"
            raise ParserOptionError(msg)
        self.expected = f"not an address in {', '.join(map(str, listed))}"
        try:
            self._networks: list[IPv4Network | IPv6Network] = [ip_network(str(each)) for each in listed]
        except ValueError as error:
            raise ParserOptionError(f"network: {error}") from error

    def accepts(self, value: bytes) -> bool:
        try:
            address = ip_address(value.decode("ascii"))
        except ValueError:
            return False
        return "%" not in str(address) and any(address in network for network in self._networks)


TESTS: Mapping[str, Callable[[object], Test]] = {
    "matches": Matches,
    "network": Network,
    "one-of": OneOf,
    "time": Time,
}


def check_of(option: object) -> Check | Test:
    """
    Return the check that an option describes: a name, or a name with a parameter.

    Raises:
        ParserOptionError: there is no such check, or its parameter is wrong.
    """
    if isinstance(option, str) and option in (*Check,):
        return Check(option)
    name, parameter = next(iter(option.items())) if isinstance(option, Mapping) and len(option) == 1 else (option, None)
    known = isinstance(name, str) and name in TESTS
    if known and parameter is not None:
        return TESTS[str(name)](parameter)
    if known:
        raise ParserOptionError(f"{name} needs a parameter: write {{{name}: …}}")
    if name in (*Check,):
        raise ParserOptionError(f"{name} takes no parameter: write {name}")
    raise ParserOptionError(f"no check {name!r}; {hint(str(name), [*Check, *TESTS])}")
