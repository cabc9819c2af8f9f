"""Every built-in parser fulfils the contract, with either engine and in any envelope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from parsers.contract import Parsed, Parser
from parsers.delimited import Delimited
from parsers.flume.envelope import wrap
from parsers.idc_access_log import IdcAccessLog
from parsers.testing import ParserContract, batch, outcomes
from tests.fuzz.formats import cases

IDC_LINE = (
    b"<<<!>>>3111<<<!>>>,<<<!>>>238<<<!>>>,<<<!>>>20171112132902<<<!>>>,<<<!>>>58.223.1.112<<<!>>>,<<<!>>>"
    b"2001:db8::1<<<!>>>,<<<!>>>59948<<<!>>>,<<<!>>>80<<<!>>>,<<<!>>><<<!>>>,<<<!>>><<<!>>>,<<<!>>><<<!>>>,<<<!>>>"
    b"<<<!>>>,<<<!>>><<<!>>>,<<<!>>><<<!>>>,<<<!>>>http://a/\xb9\xe3|?b=c,d<<<!>>>,<<<!>>>9<<<!>>>"
)
IDC_BODY = bytes([len(IDC_LINE) * 2 % 128 + 128, len(IDC_LINE) * 2 // 128]) + IDC_LINE


class TestIdcCompiled(ParserContract):
    """The access log parser on the compiled engine."""

    good_lines = (IDC_LINE, IDC_LINE + b"\r\n")

    def make_parser(self) -> Parser:
        return IdcAccessLog(engine="compiled")


class TestIdcPlain(ParserContract):
    """The access log parser in plain Python."""

    good_lines = (IDC_LINE,)

    def make_parser(self) -> Parser:
        return IdcAccessLog(engine="plain")


class TestUnmarked(ParserContract):
    """Lines without a marker, with a field written twice."""

    good_lines = (b"a;b", b"\xff;1")

    def make_parser(self) -> Parser:
        return Delimited(separator=";", fields=["x", "y"], output="{x}|{x}|{y}", escape=["x", "y"])


class _OfFormat(ParserContract):
    """A format beside `delimited`, on the compiled engine."""

    case = ""

    @property
    def good_lines(self) -> Sequence[bytes]:  # type: ignore[override]
        return cases()[self.case].lines

    def make_parser(self) -> Parser:
        return cases()[self.case].pair.compiled


class TestJson(_OfFormat):
    case = "json"


class TestLogfmt(_OfFormat):
    case = "logfmt"


class TestCsv(_OfFormat):
    case = "csv"


class TestCombined(_OfFormat):
    """Matched by a kernel."""

    case = "combined"


class TestPattern(_OfFormat):
    """Matched by RE2."""

    case = "pattern"


class TestChecked(_OfFormat):
    """With checks that have a parameter."""

    case = "checked"


class TestFlumeCompiled(ParserContract):
    """Access log lines in Flume events, opened by the compiled engine."""

    good_lines = (b"\x00" + IDC_BODY,)

    def make_parser(self) -> Parser:
        return wrap(IdcAccessLog(), "flume-avro")


class TestFlumePlain(ParserContract):
    """Access log lines in Flume events, opened in plain Python."""

    good_lines = (b"\x02\x02k\x02v\x00" + IDC_BODY,)

    def make_parser(self) -> Parser:
        return wrap(IdcAccessLog(engine="plain"), "flume-avro", engine="plain")


class TestAuto(ParserContract):
    """Access log lines, some of them in Flume events."""

    good_lines = (IDC_LINE, b"\x00" + IDC_BODY)

    def make_parser(self) -> Parser:
        return wrap(IdcAccessLog(), "auto")


class _Forgetful:
    """A parser that loses rows."""

    def parse(self, lines: object) -> Parsed:
        parsed = IdcAccessLog(engine="plain").parse(lines)
        return Parsed(parsed.values, parsed.rows, parsed.reject_rows[:0], parsed.reasons[:0], parsed.details[:0])


def test_a_lost_row_is_noticed() -> None:
    """A parser that returns no result for a row fails the contract."""
    with pytest.raises(AssertionError, match="not the rows of the batch"):
        outcomes(_Forgetful().parse(batch([b"x"])), 1)


class _Speechless:
    """A parser that gives no reasons."""

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        parsed = IdcAccessLog(engine="plain").parse(lines)
        return replace(parsed, reasons=pa.array([""] * len(parsed.reasons), pa.string()))


def test_what_the_service_does_not_take_is_noticed() -> None:
    """The author of a parser reads the words that a dead letter would have."""

    class Contract(ParserContract):
        def make_parser(self) -> Parser:
            return _Speechless()

    with pytest.raises(AssertionError, match="a reason is empty"):
        Contract().test_every_row_has_one_outcome()
