"""The fields of an output: each pattern finds exactly what the parser has written, or there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.contract import Parser
from parsers.delimited import Delimited
from parsers.errors import ParserOptionError
from parsers.fields.located import cut, pattern_of
from parsers.flume import envelope
from parsers.idc_access_log import IdcAccessLog
from parsers.testing import batch
from tests.fakes.parsers import Wrong

IDC = IdcAccessLog()
TEXT = st.binary(max_size=12)
ADDRESS = st.ip_addresses().map(str)
PORT = st.integers(0, 65535).map(str)
CHECKED = {"a": "ip", "b": "port", "c": "datetime", "d": "not-empty"}


def cut_from(parser: Parser, name: str, *lines: bytes) -> list[bytes | None]:
    """Parse lines, and extract a field from the results."""
    values = parser.parse(batch(lines)).values
    assert len(values) == len(lines)
    found: list[bytes | None] = cut(values, pattern_of(parser, name)).to_pylist()
    return found


@settings(max_examples=25, deadline=None, database=None)
@given(source=st.tuples(ADDRESS, PORT), destination=st.tuples(ADDRESS, PORT), url=TEXT)
def test_every_field_of_the_access_log(source: tuple[str, str], destination: tuple[str, str], url: bytes) -> None:
    """Each of the seven fields is found as it is in the line, whatever the others contain."""
    fields = dict.fromkeys(range(15), b"") | {1: b"a:1.2 b", 2: b"20171112132902", 13: url.strip(b"\r\n<!>,")}
    fields |= {3: source[0].encode(), 4: destination[0].encode(), 5: source[1].encode(), 6: destination[1].encode()}
    line = b"<<<!>>>" + b"<<<!>>>,<<<!>>>".join(fields[at] for at in range(15)) + b"<<<!>>>"
    (cleansed,) = IDC.parse(batch([line])).values.to_pylist()
    names = ("houseid", "gathertime", "srcip", "srcport", "destip", "destport", "url")

    found = {name: cut_from(IDC, name, line)[0] for name in names}

    assert set(names) == set(IDC.output_fields)
    assert cleansed == b"%(houseid)b|%(gathertime)b|%(srcip)b:%(srcport)b|%(destip)b:%(destport)b|%(url)b" % {
        name.encode(): value for name, value in found.items()
    }
    assert b"[" not in (found["srcport"] or b"")


@pytest.mark.parametrize(
    ("output", "options", "fields"),
    [
        ("{a}", {}, "a"),
        ("{a}|{b}", {}, "ab"),
        ("<{a}>|{d}", {}, "ad"),
        ("{a} {b}", {"output_separator": " "}, "ab"),
        ("{d}]{b}^{c}", {"output_separator": "^"}, "c"),
        ("{a}:{b}|{c}", {"checks": CHECKED}, "abc"),
        ("{b}.:{a}-{c}|{d}", {"checks": CHECKED}, "abcd"),
        ("{b}.{a}|{c}", {"checks": CHECKED}, "c"),
        ("{b}{c}|{d}", {"checks": CHECKED}, "d"),
        ("{d}:{b}|{c}", {"checks": CHECKED}, "c"),
        ("{a}[x]{b}|{c}", {"checks": CHECKED}, "c"),
        ("{a}:{b}|{c}", {}, "c"),
        ("{d}|{d}:{b}", {}, "d"),
    ],
)
def test_which_fields_can_be_told_apart(output: str, options: Mapping[str, Any], fields: str) -> None:
    """A field needs a column of its own, or checked neighbours separated by more than digits."""
    parser = Delimited(fields=list("abcd"), output=output, **options)
    values = {"a": b"::1" if "checks" in options else b"x", "b": b"80", "c": b"20171112132902", "d": b"y-"}

    found = {name: cut_from(parser, name, b",".join(values.values())) for name in parser.output_fields}

    written = values | ({"a": b"[::1]"} if "checks" in options else {})
    assert {name: [written[name]] for name in fields} == found


def test_an_envelope_hides_no_field() -> None:
    """A parser's fields are the same if an envelope is opened first."""
    assert pattern_of(IDC, "houseid") == pattern_of(envelope.wrap(IDC, "auto"), "houseid")


class WithPattern(Wrong):
    """A user's parser with one field."""

    def __init__(self, pattern: str) -> None:
        super().__init__(lambda parsed: parsed)
        self.output_fields = {"last": pattern}


class WithFields(Wrong):
    """A user's parser with these fields."""

    def __init__(self, fields: Callable[[], Any]) -> None:
        super().__init__(lambda parsed: parsed)
        self._fields = fields

    @property
    def output_fields(self) -> Mapping[str, str]:
        return self._fields()  # type: ignore[no-any-return]


def test_a_line_without_the_field_has_no_key() -> None:
    """A user's pattern may match only some lines. It is applied to any bytes."""
    values = batch([b"a/\xff", b"a", b"/", b""])

    assert [b"\xff", None, b"", None] == cut(values, pattern_of(WithPattern("/(?P<field>.*)"), "last")).to_pylist()


@pytest.mark.parametrize(
    ("parser", "name", "message"),
    [
        (IDC, "housid", "^the parser's lines have no field 'housid'; did you mean 'houseid'?"),
        (Wrong(lambda parsed: parsed), "houseid", "no field 'houseid'; known: none"),
        (envelope.wrap(Wrong(lambda parsed: parsed), "auto"), "houseid", "no field 'houseid'; known: none"),
        (WithPattern("(?P<field>"), "last", "^the parser's pattern for 'last' is invalid: .*missing"),
        (WithPattern("(?P<key>.)"), "last", "^the parser's pattern for 'last' is invalid: .*field"),
        (WithPattern("."), "last", "^the parser's pattern for 'last' is invalid: "),
        (WithPattern("(.)"), "last", "^the parser's pattern for 'last' is invalid: "),
        (WithFields(lambda: dict[str, str]()["a"]), "last", "^the parser cannot say its fields: KeyError: 'a'"),
        (
            envelope.wrap(WithFields(lambda: dict[str, str]()["a"]), "auto"),
            "last",
            "^the parser cannot say its fields: KeyError",
        ),
        (WithFields(lambda: None), "last", "^the parser cannot say its fields: TypeError"),
    ],
)
def test_a_field_that_cannot_be_found(parser: Parser, name: str, message: str) -> None:
    """Before anything runs, the error lists the known fields, or says what the pattern lacks."""
    with pytest.raises(ParserOptionError, match=message):
        pattern_of(parser, name)
