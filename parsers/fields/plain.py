"""Lines of any format in plain Python: the fallback without Numba, and the reference for the kernel `cleanse`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, time
from ipaddress import AddressValueError, IPv6Address

import numpy as np
import pyarrow as pa

from parsers.contract import Parsed
from parsers.fields.checks import Check, Test
from parsers.fields.formats import Format, RefusedLine, fields_of
from parsers.fields.layout import Form, Layout, Piece

_DIGITS = re.compile(rb"[0-9]+")
_MOMENT = re.compile(rb"[0-9]{14}")
_OCTET = rb"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rb"%b(?:\.%b){3}" % (_OCTET, _OCTET))
_IPV6 = re.compile(rb"[0-9A-Fa-f:.]{2,45}")
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(_INTEGER.pattern + rb"(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BLANKS = b" \t"
_HIGHEST_PORT = 65535


class Plain:
    """Cleanses lines one by one."""

    def __init__(self, layout: Layout, form: Format) -> None:
        self._layout = layout
        self._form = form
        breaks_texts = "" if layout.is_json else rf"\x00-\x1f\x7f{re.escape(chr(layout.output_separator))}"
        self._breaking = re.compile(rf"[{breaks_texts}\udc80-\udcff]")

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        values, rows, reject_rows, refusals = [], [], [], []
        for row, line in enumerate(lines.to_pylist()):
            try:
                values.append(self._cleanse(line))
                rows.append(row)
            except RefusedLine as refused:
                reject_rows.append(row)
                refusals.append(refused.args)
        return Parsed(
            values=pa.array(values, pa.binary()),
            rows=np.array(rows, np.int32),
            reject_rows=np.array(reject_rows, np.int32),
            reasons=pa.array([reason for reason, _ in refusals], pa.string()),
            details=pa.array([detail for _, detail in refusals], pa.string()),
        )

    def _cleanse(self, line: bytes | None) -> bytes:
        layout = self._layout
        fields = list(fields_of(self._form, line))
        for number, check in enumerate(layout.checks):
            value = fields[check.field]
            if check.trimmed:
                value = fields[check.field] = value.strip(_BLANKS)
            if not passes(check.check, value):
                raise RefusedLine(*layout.failed(number, value))
        return b"".join(self._written(piece, fields) for piece in layout.pieces)

    def _written(self, piece: Piece, fields: Sequence[bytes]) -> bytes:
        value = piece.literal if piece.form is Form.LITERAL else fields[piece.field]
        if piece.form in (Form.LITERAL, Form.CLEAN):
            return value
        if piece.form is Form.ADDRESS:
            return b"[" + value + b"]" if b":" in value else value
        # Decoding turns each byte that is not part of valid UTF-8 into a lone surrogate, which the pattern matches.
        text = value.decode("utf-8", "surrogateescape")
        if piece.form in (Form.ESCAPED, Form.JSON_ESCAPED):
            text = self._breaking.sub(_percent, text)
        elif self._breaking.search(text):
            raise RefusedLine(*self._layout.illegal(piece.field, value))
        return (json.dumps(text, ensure_ascii=False)[1:-1] if self._layout.is_json else text).encode()


def _percent(found: re.Match[str]) -> str:
    return f"%{found[0].encode('utf-8', 'surrogateescape')[0]:02X}"


def passes(check: Check | Test, value: bytes) -> bool:
    """Return whether a field, without blanks around it, passes its check."""
    return bool(_CHECKS[check](value)) if isinstance(check, Check) else check.accepts(value)


def is_datetime(value: bytes) -> bool:
    """Return whether the value is 14 digits that are a date and time: YYYYMMDDhhmmss."""
    if not _MOMENT.fullmatch(value):
        return False
    try:
        date(int(value[:4]), int(value[4:6]), int(value[6:8]))
        time(int(value[8:10]), int(value[10:12]), int(value[12:14]))
    except ValueError:
        return False
    return True


def is_address(value: bytes) -> bool:
    """Return whether the value is an IPv4 address without leading zeros, or an IPv6 address without a zone."""
    if b":" not in value:
        return bool(_IPV4.fullmatch(value))
    if not _IPV6.fullmatch(value):
        return False
    try:
        IPv6Address(value.decode())
    except AddressValueError:
        return False
    return True


def is_port(value: bytes) -> bool:
    """Return whether the value is ASCII digits, possibly with leading zeros, up to 65535."""
    return bool(_DIGITS.fullmatch(value)) and int(value.lstrip(b"0")[:6] or b"0") <= _HIGHEST_PORT


_CHECKS: Mapping[Check, Callable[[bytes], object]] = {
    Check.NOT_EMPTY: bool,
    Check.DATETIME: is_datetime,
    Check.IP: is_address,
    Check.PORT: is_port,
    Check.INTEGER: _INTEGER.fullmatch,
    Check.NUMBER: _NUMBER.fullmatch,
}
