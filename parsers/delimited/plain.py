"""Delimited lines in plain Python: the fallback without Numba, and the reference for the kernel `cleanse`."""

from __future__ import annotations

import re
from datetime import date, time
from ipaddress import AddressValueError, IPv6Address

import numpy as np
import pyarrow as pa

from parsers.contract import Parsed
from parsers.delimited.layout import CHECK, EMPTY, FIELD_COUNT, ILLEGAL, NO_MARKER, NO_VALUE, Check, Form, Layout, Piece

_DIGITS = re.compile(rb"[0-9]+")
_MOMENT = re.compile(rb"[0-9]{14}")
_OCTET = rb"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rb"%b(?:\.%b){3}" % (_OCTET, _OCTET))
_IPV6 = re.compile(rb"[0-9A-Fa-f:.]{2,45}")
_BLANKS = b" \t"
_HIGHEST_PORT = 65535


class RefusedLine(Exception):
    """A line is rejected. The arguments are those of `Layout.refusal`."""


class Plain:
    """Cleanses delimited lines one by one."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        separator = re.escape(chr(layout.output_separator))
        self._breaking = re.compile(rf"[\x00-\x1f\x7f\udc80-\udcff{separator}]")

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        values, rows, reject_rows, refusals = [], [], [], []
        for row, line in enumerate(lines.to_pylist()):
            try:
                values.append(self._cleanse(line))
                rows.append(row)
            except RefusedLine as refused:
                reject_rows.append(row)
                refusals.append(self._layout.refusal(*refused.args))
        return Parsed(
            values=pa.array(values, pa.binary()),
            rows=np.array(rows, np.int32),
            reject_rows=np.array(reject_rows, np.int32),
            reasons=pa.array([reason for reason, _ in refusals], pa.string()),
            details=pa.array([detail for _, detail in refusals], pa.string()),
        )

    def _cleanse(self, line: bytes | None) -> bytes:
        layout = self._layout
        fields = self._split(line)
        for number, check in enumerate(layout.checks):
            value = fields[check.field]
            if check.trimmed:
                value = fields[check.field] = value.strip(_BLANKS)
            if not _passes(check.check, value):
                raise RefusedLine(CHECK, number, value)
        return b"".join(self._written(piece, fields) for piece in layout.pieces)

    def _split(self, line: bytes | None) -> list[bytes]:
        layout = self._layout
        if line is None:
            raise RefusedLine(NO_VALUE)
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if not line:
            raise RefusedLine(EMPTY)
        width = len(layout.marker)
        wrapped = len(line) >= 2 * width and line.startswith(layout.marker) and line.endswith(layout.marker)
        if not wrapped:
            raise RefusedLine(NO_MARKER)
        fields = line[width : len(line) - width].split(layout.separator)
        if len(fields) != len(layout.fields):
            raise RefusedLine(FIELD_COUNT, len(fields))
        return fields

    def _written(self, piece: Piece, fields: list[bytes]) -> bytes:
        value = piece.literal if piece.form is Form.LITERAL else fields[piece.field]
        if piece.form is Form.ADDRESS and b":" in value:
            return b"[" + value + b"]"
        if piece.form in (Form.EXACT, Form.ESCAPED):
            # Decoding turns each byte that is not part of valid UTF-8 into a lone surrogate, which the pattern matches.
            text = value.decode("utf-8", "surrogateescape")
            if piece.form is Form.EXACT and self._breaking.search(text):
                raise RefusedLine(ILLEGAL, piece.field, value)
            return self._breaking.sub(_percent, text).encode()
        return value


def _percent(found: re.Match[str]) -> str:
    return f"%{found[0].encode('utf-8', 'surrogateescape')[0]:02X}"


def _passes(check: Check, value: bytes) -> bool:
    match check:
        case Check.NOT_EMPTY:
            return bool(value)
        case Check.DATETIME:
            return is_datetime(value)
        case Check.IP:
            return is_address(value)
        case Check.PORT:
            return is_port(value)


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
