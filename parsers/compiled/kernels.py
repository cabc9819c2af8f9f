"""
The compiled loops: `cleanse` for delimited lines; `bodies` and `gather` for Flume's events.

They take the buffers of Arrow arrays by address. A function reads only bytes from its `begin` or `at` up to its `end`,
the address after the last byte; it loads several bytes at once only if all of them are in between.

Everything that a kernel is compiled from is in this file: Numba's cache recompiles a kernel when the kernel's own file
has changed, and checks no other.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: ANN001, ANN201, ANN202, C901, PLR0911, PLR0917, PLR1714, SIM110
# llvmlite has no types, and Numba infers those of kernels. Kernels are written for the machine: long, flat, no sets.

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from parsers.compiled.jit import inlined, intrinsic, kernel

NO_VALUE, EMPTY, NO_MARKER, FIELD_COUNT, CHECK, ILLEGAL = range(6)
"""The rules that reject a line; the first column of `rejects`."""
NOT_EMPTY, DATETIME, IP, PORT = range(4)
"""The checks of a field; the second column of `checks`."""
LITERAL, CLEAN, ADDRESS, EXACT, ESCAPED = range(5)
"""The forms of a piece of the output; the first column of `pieces`."""
ROW, WRITTEN, ROWS, REJECTS = range(4)
"""The indices of `state`: the next row, and the output bytes, cleansed rows and rejected rows so far."""
EVENT, TRUNCATED, LEFTOVER, MALFORMED = range(4)
"""The kinds of values, numbered as in `parsers.flume.event.Kind`."""
SLACK = 64
"""The space that an output buffer needs beyond its capacity, because bytes are copied sixteen at a time."""

_I1, _I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
_BYTES_16, _BYTES_32, _BYTES_64 = (ir.VectorType(_I8, lanes) for lanes in (16, 32, 64))
_HIGHEST_PORT = 65535


# Instructions ---------------------------------------------------------------------------------------------------------


def _load(builder, address, kind):
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _all_lanes(builder, byte, kind):
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), builder.trunc(byte, _I8), ir.Constant(_I32, 0))
    order = ir.Constant(ir.VectorType(_I32, kind.count), [0] * kind.count)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), order)


def _constant(byte, kind):
    return ir.Constant(kind, [byte] * kind.count)


@intrinsic
def byte_at(_context, _address):
    def build(_target, builder, _signature, args):
        return builder.zext(_load(builder, args[0], _I8), _I64)

    return types.int64(types.int64), build


@intrinsic
def offset_at(_context, _address):
    """Load one of Arrow's 32-bit offsets."""

    def build(_target, builder, _signature, args):
        return builder.sext(_load(builder, args[0], _I32), _I64)

    return types.int64(types.int64), build


@intrinsic
def word_at(_context, _address):
    """Load eight bytes."""

    def build(_target, builder, _signature, args):
        return _load(builder, args[0], _I64)

    return types.int64(types.int64), build


@intrinsic
def put_byte(_context, _address, _byte):
    def build(_target, builder, _signature, args):
        builder.store(builder.trunc(args[1], _I8), builder.inttoptr(args[0], _I8.as_pointer()), align=1)
        return args[0]

    return types.int64(types.int64, types.int64), build


@intrinsic
def put_offset(_context, _address, _offset):
    def build(_target, builder, _signature, args):
        builder.store(builder.trunc(args[1], _I32), builder.inttoptr(args[0], _I32.as_pointer()), align=1)
        return args[0]

    return types.int64(types.int64, types.int64), build


@intrinsic
def copy_16(_context, _to, _source):
    def build(_target, builder, _signature, args):
        builder.store(_load(builder, args[1], _BYTES_16), builder.inttoptr(args[0], _BYTES_16.as_pointer()), align=1)
        return args[0]

    return types.int64(types.int64, types.int64), build


@intrinsic
def same_in_64(_context, _address, _byte):
    """Load 64 bytes; return a bitmap of those equal to this byte, the first byte in the lowest bit."""

    def build(_target, builder, _signature, args):
        same = builder.icmp_signed("==", _load(builder, args[0], _BYTES_64), _all_lanes(builder, args[1], _BYTES_64))
        return builder.bitcast(same, _I64)

    return types.uint64(types.int64, types.int64), build


@intrinsic
def suspect_in_32(_context, _address, _separator):
    """Load 32 bytes; return a bitmap of those that are control characters, not ASCII, or the output separator."""

    def build(_target, builder, _signature, args):
        loaded = _load(builder, args[0], _BYTES_32)
        low_or_high = builder.icmp_signed("<", loaded, _constant(0x20, _BYTES_32))  # as signed bytes, 0x80-0xFF are low
        delete = builder.icmp_signed("==", loaded, _constant(0x7F, _BYTES_32))
        separator = builder.icmp_signed("==", loaded, _all_lanes(builder, args[1], _BYTES_32))
        return builder.zext(builder.bitcast(builder.or_(builder.or_(low_or_high, delete), separator), _I32), _I64)

    return types.int64(types.int64, types.int64), build


@intrinsic
def lowest_bit(_context, _bits):
    def build(_target, builder, _signature, args):
        return builder.cttz(args[0], ir.Constant(_I1, 1))

    return types.int64(types.uint64), build


# Text -----------------------------------------------------------------------------------------------------------------


@inlined
def same(left, right, size):
    """Return whether two byte ranges are equal. Compares eight bytes at a time while there are as many."""
    if size < 8:
        for i in range(size):
            if byte_at(left + i) != byte_at(right + i):
                return False
        return True
    i = 0
    while i + 8 < size:
        if word_at(left + i) != word_at(right + i):
            return False
        i += 8
    return word_at(left + size - 8) == word_at(right + size - 8)


@inlined
def copy(to, begin, size, end):
    """
    Copy bytes; return the address after the copy.

    Up to fifteen more bytes are written, and read only if they lie before `end`.
    """
    i = 0
    while i < size and begin + i + 16 <= end:
        copy_16(to + i, begin + i)
        i += 16
    while i < size:
        put_byte(to + i, byte_at(begin + i))
        i += 1
    return to + size


@inlined
def continues(at):
    """Return whether this byte continues a UTF-8 sequence."""
    return byte_at(at) & 0xC0 == 0x80


@inlined
def sequence(at, end):
    """Return the length of the UTF-8 sequence that begins at a byte from 0x80 up, or 0 if it is invalid."""
    lead = byte_at(at)
    if 0xC2 <= lead <= 0xDF:
        return 2 if at + 2 <= end and continues(at + 1) else 0
    if 0xE0 <= lead <= 0xEF:
        if at + 3 > end or not (continues(at + 1) and continues(at + 2)):
            return 0
        second = byte_at(at + 1)
        overlong, surrogate = lead == 0xE0 and second < 0xA0, lead == 0xED and second > 0x9F
        return 0 if overlong or surrogate else 3
    if 0xF0 <= lead <= 0xF4:
        if at + 4 > end or not (continues(at + 1) and continues(at + 2) and continues(at + 3)):
            return 0
        second = byte_at(at + 1)
        overlong, beyond = lead == 0xF0 and second < 0x90, lead == 0xF4 and second > 0x8F
        return 0 if overlong or beyond else 4
    return 0


@inlined
def harmless(at, end, separator):
    """Return the length of the character here, or 0 if it would break the output."""
    byte = byte_at(at)
    if byte >= 0x80:
        return sequence(at, end)
    return 0 if byte < 0x20 or byte == 0x7F or byte == separator else 1


@inlined
def next_suspect(at, end, separator):
    """Return the next byte that needs a closer look, or `end`."""
    while at + 32 <= end:
        bits = suspect_in_32(at, separator)
        if bits:
            return at + lowest_bit(np.uint64(bits))
        at += 32
    while at < end and 0x20 <= byte_at(at) < 0x7F and byte_at(at) != separator:
        at += 1
    return at


@inlined
def is_harmless(begin, end, separator):
    """Return whether the text is UTF-8 without a character that would break the output."""
    at = next_suspect(begin, end, separator)
    while at < end:
        size = harmless(at, end, separator)
        if size == 0:
            return False
        # Non-ASCII text rarely comes alone: check one by one until it ends.
        at = at + size if at + size < end and byte_at(at + size) >= 0x80 else next_suspect(at + size, end, separator)
    return True


@inlined
def hexadecimal(digit):
    return digit + 48 if digit < 10 else digit + 55


@inlined
def put_escaped(to, begin, end, row_end, separator):
    """Write the text, and percent-encode every byte that would break the output; return its end."""
    at = begin
    while at < end:
        clean = next_suspect(at, end, separator)
        to = copy(to, at, clean - at, row_end)
        at = clean
        while at < end:
            size = harmless(at, end, separator)
            if size == 0:
                byte = byte_at(at)
                put_byte(to, 37)
                put_byte(to + 1, hexadecimal(byte >> 4))
                put_byte(to + 2, hexadecimal(byte & 15))
                to += 3
                at += 1
            elif size == 1:
                break
            else:
                for i in range(size):
                    put_byte(to + i, byte_at(at + i))
                to += size
                at += size
    return to


# Checks ---------------------------------------------------------------------------------------------------------------


@inlined
def is_digit(byte):
    return 48 <= byte <= 57


@inlined
def two_digits(at):
    """Return the number that two digits form, or a number above 99 if they are not digits."""
    tens, ones = byte_at(at), byte_at(at + 1)
    return (tens - 48) * 10 + ones - 48 if is_digit(tens) and is_digit(ones) else 100


@inlined
def is_datetime(begin, end):
    """Return whether the value is 14 digits that are a date and a time of day."""
    if end - begin != 14:
        return False
    century, year = two_digits(begin), two_digits(begin + 2)
    month, day = two_digits(begin + 4), two_digits(begin + 6)
    if century > 99 or year > 99 or century + year == 0 or not 1 <= month <= 12 or not 1 <= day <= 31:
        return False
    if two_digits(begin + 8) > 23 or two_digits(begin + 10) > 59 or two_digits(begin + 12) > 59:
        return False
    if month == 2:
        leap = year % 4 == 0 and (year != 0 or century % 4 == 0)
        return day <= 28 + leap
    return day <= 30 or not (month == 4 or month == 6 or month == 9 or month == 11)


@inlined
def is_ipv4(begin, end):
    """Return whether the value is four octets without leading zeros."""
    if not 7 <= end - begin <= 15:
        return False
    dots, digits, octet = 0, 0, 0
    for at in range(begin, end):
        byte = byte_at(at)
        if byte == 46:
            if digits == 0:
                return False
            dots, digits, octet = dots + 1, 0, 0
        elif is_digit(byte) and (digits == 0 or octet > 0):
            digits, octet = digits + 1, octet * 10 + byte - 48
            if octet > 255:
                return False
        else:
            return False
    return dots == 3 and digits > 0


@inlined
def is_hexadecimal(byte):
    return is_digit(byte) or 97 <= byte | 32 <= 102


@inlined
def is_ipv6(begin, end):
    """Return whether the value is eight groups, or fewer and one `::`; the last two may be written as IPv4."""
    if not 2 <= end - begin <= 45:
        return False
    groups, gap, at = 0, False, begin
    if byte_at(at) == 58:
        if byte_at(at + 1) != 58:
            return False
        gap, at = True, at + 2
    while at < end:
        group = at
        while at < end and at - group < 4 and is_hexadecimal(byte_at(at)):
            at += 1
        if at == group:
            return False
        if at < end and byte_at(at) == 46:
            if not is_ipv4(group, end):
                return False
            groups, at = groups + 2, end
            break
        groups += 1
        if at == end:
            break
        if byte_at(at) != 58 or at + 1 == end:
            return False
        at += 1
        if byte_at(at) == 58:
            if gap:
                return False
            gap, at = True, at + 1
    return groups <= 7 if gap else groups == 8


@inlined
def is_port(begin, end):
    """Return whether the value is digits up to 65535."""
    port = 0
    for at in range(begin, end):
        byte = byte_at(at)
        if not is_digit(byte):
            return False
        port = port * 10 + byte - 48
        if port > _HIGHEST_PORT:
            return False
    return end > begin


@inlined
def passes(kind, begin, end):
    if kind == NOT_EMPTY:
        return end > begin
    if kind == DATETIME:
        return is_datetime(begin, end)
    if kind == IP:
        return is_ipv4(begin, end) or is_ipv6(begin, end)
    return is_port(begin, end)


@inlined
def is_blank(at):
    byte = byte_at(at)
    return byte == 32 or byte == 9


@inlined
def first_failed(checks, spans):
    """Trim and check the fields; return the index of the first check that fails, or the number of checks."""
    for number in range(checks.shape[0]):
        field, kind, trimmed = checks[number, 0], checks[number, 1], checks[number, 2]
        begin, end = spans[field, 0], spans[field, 1]
        if trimmed:
            while begin < end and is_blank(begin):
                begin += 1
            while begin < end and is_blank(end - 1):
                end -= 1
            spans[field, 0], spans[field, 1] = begin, end
        if not passes(kind, begin, end):
            return number
    return checks.shape[0]


# Lines ----------------------------------------------------------------------------------------------------------------


@inlined
def is_null(validity, number):
    """Return whether Arrow's validity bitmap, if there is one, marks this place as null."""
    return validity != 0 and (byte_at(validity + (number >> 3)) >> (number & 7)) & 1 == 0


@inlined
def without_line_end(begin, end):
    """Return the end of the line without its CR, LF or CRLF."""
    if end > begin and byte_at(end - 1) == 10:
        end -= 1
    if end > begin and byte_at(end - 1) == 13:
        end -= 1
    return end


@inlined
def anchors(begin, base, end, byte):
    """Return a bitmap of up to 64 bytes from `base` that are equal to `byte`. The line begins at `begin`."""
    if end - base >= 64:
        return same_in_64(base, byte)
    if end - begin >= 64:
        return same_in_64(end - 64, byte) >> np.uint64(64 - (end - base))
    bits = np.uint64(0)
    for i in range(end - base):
        if byte_at(base + i) == byte:
            bits |= np.uint64(1) << np.uint64(i)
    return bits


@inlined
def split(begin, end, separator, size, anchor, spans):
    """
    Find the fields from the left, like `bytes.split`; return how many there are.

    The separator is searched only around bytes equal to its rarest one, the anchor.
    """
    byte = byte_at(separator + anchor)
    count, field, base = 0, begin, begin
    while base < end:
        bits = anchors(begin, base, end, byte)
        while bits != np.uint64(0):
            at = base + lowest_bit(bits) - anchor
            bits &= bits - np.uint64(1)
            if at >= field and at + size <= end and same(at, separator, size):
                if count < spans.shape[0]:
                    spans[count, 0], spans[count, 1] = field, at
                count += 1
                field = at + size
        base += 64
    if count < spans.shape[0]:
        spans[count, 0], spans[count, 1] = field, end
    return count + 1


@inlined
def write(to, texts, pieces, spans, row_end, separator):
    """Write the output of a line; return its end, or a negative number for an illegal piece: -1 for the first piece."""
    for number in range(pieces.shape[0]):
        form = pieces[number, 0]
        if form == LITERAL:
            size = pieces[number, 2]
            for i in range(size):
                put_byte(to + i, byte_at(texts + pieces[number, 1] + i))
            to += size
            continue
        field = pieces[number, 1]
        begin, end = spans[field, 0], spans[field, 1]
        if form == ESCAPED:
            to = put_escaped(to, begin, end, row_end, separator)
            continue
        if form == EXACT and not is_harmless(begin, end, separator):
            return -1 - number
        bracketed = False
        if form == ADDRESS:
            # Only an IPv6 address has a colon, and then it is in the first five bytes.
            for at in range(begin, min(end, begin + 5)):
                bracketed |= byte_at(at) == 58
        if bracketed:
            put_byte(to, 91)
            to = copy(to + 1, begin, end - begin, row_end)
            put_byte(to, 93)
            to += 1
        else:
            to = copy(to, begin, end - begin, row_end)
    return to


@inlined
def reject(rejects, reject_rows, state, row, code, detail, begin, end):
    """Add a rejected row with the numbers for its detail."""
    number = state[REJECTS]
    reject_rows[number] = row
    rejects[number, 0], rejects[number, 1], rejects[number, 2], rejects[number, 3] = code, detail, begin, end
    state[REJECTS] = number + 1


@kernel(
    "void(int64, int64, int64, int64, int64, int64, int64[::1], int64[:, ::1], int64[:, ::1],"
    " int64, int64, int64, int32[::1], int32[::1], int64[:, ::1], int64[::1])"
)
def cleanse(
    values: int,
    offsets: int,
    validity: int,
    first: int,
    total: int,
    texts: int,
    shape: NDArray[np.int64],
    checks: NDArray[np.int64],
    pieces: NDArray[np.int64],
    out: int,
    out_offsets: int,
    capacity: int,
    rows: NDArray[np.int32],
    reject_rows: NDArray[np.int32],
    rejects: NDArray[np.int64],
    state: NDArray[np.int64],
) -> None:
    """
    Cleanse lines from `state[ROW]` on, until all are done or the next one might not fit into the output.

    Args:
        values, offsets, validity, first, total: the array, as in `parsers.compiled.buffers.Buffers`.
        texts: the address of the marker, the separator and the output's literals, one after the other.
        shape: seven numbers: the sizes of the marker and of the separator, the position of the separator's anchor, the
            number of fields, the output separator, the most repetitions of a field in the output, and the most bytes
            written in addition to the fields.
        checks: a row for each check: field, kind, whether the field is trimmed.
        pieces: a row for each piece of the output: the form; the field, or the position of the literal in `texts`; and
            the size of the literal.
        out: the address of the output's bytes.
        out_offsets: the address of the output's offsets; the first is 0.
        capacity: the capacity of the output in bytes, not counting the `SLACK` behind it.
        rows: filled with the cleansed rows.
        reject_rows: filled with the rejected rows.
        rejects: filled with a row for each of those: the rule; the number of the check, field or fields; and the begin
            and end of the field's text in `values`.
        state: the row to resume at and the totals so far; updated.
    """
    marker_size, separator_size, anchor, width = shape[0], shape[1], shape[2], shape[3]
    output_separator, copies, extra = shape[4], shape[5], shape[6]
    separator = texts + marker_size
    spans = np.empty((width, 2), np.int64)
    written, row = state[WRITTEN], state[ROW]
    put_offset(out_offsets + 4 * state[ROWS], written)
    while row < total:
        begin, row_end = values + offset_at(offsets + 4 * row), values + offset_at(offsets + 4 * row + 4)
        if is_null(validity, first + row):
            reject(rejects, reject_rows, state, row, NO_VALUE, 0, 0, 0)
            row += 1
            continue
        end = without_line_end(begin, row_end)
        if end == begin:
            reject(rejects, reject_rows, state, row, EMPTY, 0, 0, 0)
            row += 1
            continue
        if (
            end - begin < 2 * marker_size
            or not same(begin, texts, marker_size)
            or not same(end - marker_size, texts, marker_size)
        ):
            reject(rejects, reject_rows, state, row, NO_MARKER, 0, 0, 0)
            row += 1
            continue
        count = split(begin + marker_size, end - marker_size, separator, separator_size, anchor, spans)
        if count != width:
            reject(rejects, reject_rows, state, row, FIELD_COUNT, count, 0, 0)
            row += 1
            continue
        failed = first_failed(checks, spans)
        if failed < checks.shape[0]:
            field = checks[failed, 0]
            reject(rejects, reject_rows, state, row, CHECK, failed, spans[field, 0] - values, spans[field, 1] - values)
            row += 1
            continue
        if capacity - written < 3 * copies * (end - begin) + extra:
            break
        to = write(out + written, texts, pieces, spans, row_end, output_separator)
        if to < 0:
            field = pieces[-1 - to, 1]
            reject(rejects, reject_rows, state, row, ILLEGAL, field, spans[field, 0] - values, spans[field, 1] - values)
        else:
            written = to - out
            rows[state[ROWS]] = row
            state[ROWS] += 1
            put_offset(out_offsets + 4 * state[ROWS], written)
        row += 1
    state[ROW], state[WRITTEN] = row, written


# Flume's events -------------------------------------------------------------------------------------------------------


@inlined
def number_at(at, end):
    """
    Read one of Avro's zigzag numbers; return it and the address after it.

    Instead of that address, return 0 if the value ends first, or -1 if the number has more than nine bytes.
    """
    bits, shift = 0, 0
    while at < end:
        byte = byte_at(at)
        at += 1
        bits |= (byte & 127) << shift
        if byte < 128:
            return (bits >> 1) ^ -(bits & 1), at
        shift += 7
        if shift == 63:
            return 0, -1
    return 0, 0


@inlined
def is_utf8(begin, end):
    at = begin
    while at < end:
        size = 1 if byte_at(at) < 128 else sequence(at, end)
        if size == 0:
            return False
        at += size
    return True


@inlined
def text_end(at, end):
    """Return the address after one of Avro's strings, 0 if the value ends first, or -1 if the string is invalid."""
    size, at = number_at(at, end)
    if at <= 0:
        return at
    if size < 0:
        return -1
    if size > end - at:
        return 0
    return at + size if is_utf8(at, at + size) else -1


@inlined
def headers_end(at, end):
    """Return the address after the map of headers, 0 if the value ends first, or -1 if the map is invalid."""
    while True:
        count, at = number_at(at, end)
        if at <= 0 or count == 0:
            return at
        if count < 0:
            # The size of the block follows, which readers that skip the block need. It is ignored here.
            count = -count
            _, at = number_at(at, end)
            if at <= 0:
                return at
        # Every header takes at least two bytes, so a count that is too large ends with the value.
        for _ in range(count):
            for _ in range(2):
                at = text_end(at, end)
                if at <= 0:
                    return at


@inlined
def body(begin, end, spans, row):
    """Find the body of the event in a value; return the kind of the value."""
    at, size = headers_end(begin, end), 0
    if at > 0:
        size, at = number_at(at, end)
    if at == 0:
        return TRUNCATED
    if at < 0 or size < 0:
        return MALFORMED
    if size > end - at:
        return TRUNCATED
    if size < end - at:
        return LEFTOVER
    spans[row, 0], spans[row, 1] = at, end
    return EVENT


@kernel("int64(int64, int64, int64, int64, int64, int64[:, ::1], uint8[::1])")
def bodies(
    values: int,
    offsets: int,
    validity: int,
    first: int,
    total: int,
    spans: NDArray[np.int64],
    kinds: NDArray[np.uint8],
) -> int:
    """
    Find the bodies of the values that are Flume events; return how many there are.

    Args:
        values, offsets, validity, first, total: the array, as in `parsers.compiled.buffers.Buffers`.
        spans: filled with the addresses of the begin and end of each body, or of the value itself if it is no event.
        kinds: filled with the kind of each value. Null and empty values are `EVENT`, but not counted in the result.
    """
    events = 0
    for row in range(total):
        begin, end = values + offset_at(offsets + 4 * row), values + offset_at(offsets + 4 * row + 4)
        if is_null(validity, first + row):
            end = begin
        spans[row, 0], spans[row, 1] = begin, end
        kinds[row] = EVENT
        if end > begin:
            kinds[row] = body(begin, end, spans, row)
            events += kinds[row] == EVENT
    return events


@kernel("void(int64, int64, int64, uint8[::1], uint8[::1], int64[:, ::1], uint8[::1])")
def headers(
    values: int,
    offsets: int,
    total: int,
    kinds: NDArray[np.uint8],
    name: NDArray[np.uint8],
    spans: NDArray[np.int64],
    found: NDArray[np.uint8],
) -> None:
    """
    Find one header in every value; of several with its name, the last one counts.

    Args:
        values, offsets, total: the array, as for `bodies`.
        kinds: the kind of each value, from `bodies`.
        name: the name of the header, in UTF-8.
        spans: filled with the addresses of the begin and end of each header's value, 0 if there is none.
        found: filled with 1 if there is such a header, otherwise 0.
    """
    for row in range(total):
        spans[row, 0], spans[row, 1], found[row] = 0, 0, 0
        at, end = values + offset_at(offsets + 4 * row), values + offset_at(offsets + 4 * row + 4)
        if kinds[row] != EVENT:
            continue
        # `bodies` has already read this map: its numbers are valid, and it ends before the value does.
        count, at = number_at(at, end)
        while count != 0:
            if count < 0:
                count = -count
                _, at = number_at(at, end)
            for _ in range(count):
                size, at = number_at(at, end)
                named = size == name.shape[0] and same(at, name.ctypes.data, size)
                size, at = number_at(at + size, end)
                if named:
                    spans[row, 0], spans[row, 1], found[row] = at, at + size, 1
                at += size
            count, at = number_at(at, end)


@kernel("void(int64[:, ::1], int64[::1], int64, int64)")
def gather(spans: NDArray[np.int64], picked: NDArray[np.int64], out: int, out_offsets: int) -> None:
    """Copy the spans of the picked rows one after the other. The output must have `SLACK` bytes more than they need."""
    to = out
    put_offset(out_offsets, 0)
    for number in range(picked.shape[0]):
        begin, end = spans[picked[number], 0], spans[picked[number], 1]
        to = copy(to, begin, end - begin, end)
        put_offset(out_offsets + 4 * (number + 1), to - out)
