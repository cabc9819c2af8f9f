"""
The compiled loops: `cleanse_marked` and `cleanse_cells` for lines; `marked`, `groups` and `members` find fields;
`bodies` and `headers` open Flume's events; `gather` copies what was found.

They take the buffers of Arrow arrays by address. A function reads only bytes from its `begin` or `at` up to its `end`,
the address after the last byte; it loads several bytes at once only if all of them are in between.

Everything that a kernel is compiled from is in this file: Numba's cache recompiles a kernel when the kernel's own file
has changed, and checks no other.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: ANN001, ANN201, ANN202, C901, PLR0911, PLR0912, PLR0917, PLR1714, SIM109, SIM110
# llvmlite has no types, and a kernel's are in its signature. Kernels are written for the machine: long, flat, no sets.

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types

from parsers.compiled.jit import inlined, instruction, kernel

FORMAT, CHECK, ILLEGAL = range(3)
"""The rules that reject a line; the second column of `rejects`."""
NOT_EMPTY, DATETIME, IP, PORT, INTEGER, NUMBER, GIVEN = range(7)
"""The checks of a field; the second column of `checks`. The result of a given one comes from the caller."""
LITERAL, CLEAN, ADDRESS, EXACT, ESCAPED, JSON, JSON_ESCAPED = range(7)
"""The forms of a piece of the output; the first column of `pieces`."""
ROW, WRITTEN, ROWS, REJECTS = range(4)
"""The indices of `state`: the next row, and the output bytes, cleansed rows and rejected rows so far."""
EVENT, TRUNCATED, LEFTOVER, MALFORMED = range(4)
"""The kinds of values, numbered as in `parsers.flume.event.Kind`."""
SLACK = 64
"""The space that an output buffer needs beyond its capacity, because bytes are copied sixteen at a time."""

_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_BYTES_16, _BYTES_32, _BYTES_64 = (ir.VectorType(_I8, lanes) for lanes in (16, 32, 64))
_HIGHEST_PORT = 65535
MOST_DEPTH = 64
"""How deep a JSON value may be nested."""
_HIGH_BITS = np.int64(-0x7F7F7F7F7F7F7F80)  # 0x80 in each of eight bytes
_UPPER, _LOWER = (np.array([*digits], np.uint8) for digits in (b"0123456789ABCDEF", b"0123456789abcdef"))
_LETTERS = np.full(93, 117, np.uint8)  # what JSON writes after a backslash for a character: a letter, or u and its code
_LETTERS[[*b'\b\t\n\f\r"\\']] = [*b'btnfr"\\']
_MEANINGS = np.zeros(256, np.uint8)  # what a letter after a backslash means in JSON, or 0
_MEANINGS[[*b'btnfr"\\/']] = [*b'\b\t\n\f\r"\\/']


# Instructions ---------------------------------------------------------------------------------------------------------


def _load(builder, address, kind):
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _all_lanes(builder, byte, kind):
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), builder.trunc(byte, _I8), ir.Constant(_I32, 0))
    order = ir.Constant(ir.VectorType(_I32, kind.count), [0] * kind.count)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), order)


def _constant(byte, kind):
    return ir.Constant(kind, [byte] * kind.count)


@instruction(types.int64(types.int64))
def byte_at(builder, address):
    return builder.zext(_load(builder, address, _I8), _I64)


@instruction(types.int64(types.int64))
def offset_at(builder, address):
    """Load one of Arrow's 32-bit offsets."""
    return builder.sext(_load(builder, address, _I32), _I64)


@instruction(types.int64(types.int64))
def word_at(builder, address):
    """Load eight bytes."""
    return _load(builder, address, _I64)


@instruction(types.int64(types.int64, types.int64))
def put_byte(builder, address, byte):
    builder.store(builder.trunc(byte, _I8), builder.inttoptr(address, _I8.as_pointer()), align=1)
    return address


@instruction(types.int64(types.int64, types.int64))
def put_offset(builder, address, offset):
    builder.store(builder.trunc(offset, _I32), builder.inttoptr(address, _I32.as_pointer()), align=1)
    return address


@instruction(types.int64(types.int64, types.int64))
def copy_16(builder, to, source):
    builder.store(_load(builder, source, _BYTES_16), builder.inttoptr(to, _BYTES_16.as_pointer()), align=1)
    return to


@instruction(types.uint64(types.int64, types.int64))
def same_in_64(builder, address, byte):
    """Load 64 bytes; return a bitmap of those equal to this byte, the first byte in the lowest bit."""
    same = builder.icmp_signed("==", _load(builder, address, _BYTES_64), _all_lanes(builder, byte, _BYTES_64))
    return builder.bitcast(same, _I64)


@instruction(types.int64(types.int64, types.int64))
def suspect_in_32(builder, address, separator):
    """Load 32 bytes; return a bitmap of those that are control characters, not ASCII, or the output separator."""
    loaded = _load(builder, address, _BYTES_32)
    low_or_high = builder.icmp_signed("<", loaded, _constant(0x20, _BYTES_32))  # as signed bytes, 0x80-0xFF are low
    delete = builder.icmp_signed("==", loaded, _constant(0x7F, _BYTES_32))
    separator = builder.icmp_signed("==", loaded, _all_lanes(builder, separator, _BYTES_32))
    return builder.zext(builder.bitcast(builder.or_(builder.or_(low_or_high, delete), separator), _I32), _I64)


@instruction(types.int64(types.int64))
def special_in_32(builder, address):
    """Load 32 bytes; return a bitmap of those that are control characters, a double quote or a backslash."""
    loaded = _load(builder, address, _BYTES_32)
    control = builder.icmp_unsigned("<", loaded, _constant(0x20, _BYTES_32))
    quote = builder.icmp_signed("==", loaded, _constant(0x22, _BYTES_32))
    backslash = builder.icmp_signed("==", loaded, _constant(0x5C, _BYTES_32))
    return builder.zext(builder.bitcast(builder.or_(builder.or_(control, quote), backslash), _I32), _I64)


@instruction(types.int64(types.uint64))
def lowest_bit(builder, bits):
    return builder.cttz(bits, ir.Constant(_I1, 1))


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
def is_utf8(begin, end):
    at = begin
    while at < end:
        if at + 8 <= end and word_at(at) & _HIGH_BITS == 0:
            at += 8
            continue
        size = 1 if byte_at(at) < 128 else sequence(at, end)
        if size == 0:
            return False
        at += size
    return True


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
def put_hexadecimal(to, byte, digits):
    put_byte(to, digits[byte >> 4])
    put_byte(to + 1, digits[byte & 15])
    return to + 2


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
                put_byte(to, 37)
                to = put_hexadecimal(to + 1, byte_at(at), _UPPER)
                at += 1
            elif size == 1:
                break
            else:
                for i in range(size):
                    put_byte(to + i, byte_at(at + i))
                to += size
                at += size
    return to


@inlined
def next_special(at, end):
    """Return the next control character, double quote or backslash, or `end`."""
    while at + 32 <= end:
        bits = special_in_32(at)
        if bits:
            return at + lowest_bit(np.uint64(bits))
        at += 32
    while at < end and byte_at(at) >= 0x20 and byte_at(at) != 34 and byte_at(at) != 92:
        at += 1
    return at


@inlined
def put_json(to, begin, end, escaped):
    """Write the inside of a JSON string; return its end, or -1 if the text is not UTF-8 and must not be escaped."""
    at = begin
    while at < end:
        part = next_special(at, end)
        is_clean = is_utf8(at, part)
        if not (is_clean or escaped):
            return -1
        if is_clean:
            to = copy(to, at, part - at, end)
            at = part
        while at < part:
            size = 1 if byte_at(at) < 128 else sequence(at, part)
            if size == 0:
                put_byte(to, 37)
                to = put_hexadecimal(to + 1, byte_at(at), _UPPER)
                at += 1
            for _ in range(size):
                put_byte(to, byte_at(at))
                to += 1
                at += 1
        if at == end:
            break
        byte = byte_at(at)
        put_byte(to, 92)
        put_byte(to + 1, _LETTERS[byte])
        to += 2
        if _LETTERS[byte] == 117:
            put_byte(to, 48)
            put_byte(to + 1, 48)
            to = put_hexadecimal(to + 2, byte, _LOWER)
        at += 1
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
def digits_end(at, end):
    """Return the end of the digits that begin here, or 0 if there are none."""
    begin = at
    while at < end and is_digit(byte_at(at)):
        at += 1
    return at if at > begin else 0


@inlined
def integer_end(at, end):
    """Return the end of the integer, as JSON writes them, that begins here, or 0."""
    if at < end and byte_at(at) == 45:
        at += 1
    return at + 1 if at < end and byte_at(at) == 48 else digits_end(at, end)


@inlined
def number_end(at, end):
    """Return the end of the number, as JSON writes them, that begins here, or 0."""
    at = integer_end(at, end)
    if 0 < at < end and byte_at(at) == 46:
        at = digits_end(at + 1, end)
    if 0 < at < end and byte_at(at) | 32 == 101:
        at += 1
        if at < end and (byte_at(at) == 43 or byte_at(at) == 45):
            at += 1
        at = digits_end(at, end)
    return at


@inlined
def passes(kind, begin, end):
    if kind == NOT_EMPTY:
        return end > begin
    if kind == DATETIME:
        return is_datetime(begin, end)
    if kind == IP:
        return is_ipv4(begin, end) or is_ipv6(begin, end)
    if kind == PORT:
        return is_port(begin, end)
    if kind == GIVEN:
        return True
    return end > begin and (integer_end(begin, end) if kind == INTEGER else number_end(begin, end)) == end


@inlined
def is_blank(at):
    byte = byte_at(at)
    return byte == 32 or byte == 9


@inlined
def trim(begin, end):
    while begin < end and is_blank(begin):
        begin += 1
    while begin < end and is_blank(end - 1):
        end -= 1
    return begin, end


@inlined
def first_failed(checks, spans):
    """Trim and check the fields; return the index of the first check that fails, or the number of checks."""
    for number in range(checks.shape[0]):
        field, kind, trimmed = checks[number, 0], checks[number, 1], checks[number, 2]
        begin, end = spans[field, 0], spans[field, 1]
        if trimmed:
            begin, end = trim(begin, end)
            spans[field, 0], spans[field, 1] = begin, end
        if not passes(kind, begin, end):
            return number
    return checks.shape[0]


# Lines ----------------------------------------------------------------------------------------------------------------


@inlined
def value_at(lines, row):
    """Return the begin and end of a value. A null is empty."""
    values, offsets, validity, first = lines
    begin, end = values + offset_at(offsets + 4 * row), values + offset_at(offsets + 4 * row + 4)
    place = first + row
    is_null = validity != 0 and (byte_at(validity + (place >> 3)) >> (place & 7)) & 1 == 0
    return begin, begin if is_null else end


@inlined
def line_at(lines, row):
    """Return the begin and end of a line, without its CR, LF or CRLF. A null is an empty line."""
    begin, end = value_at(lines, row)
    if end > begin and byte_at(end - 1) == 10:
        end -= 1
    if end > begin and byte_at(end - 1) == 13:
        end -= 1
    return begin, end


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
def find_marked(begin, end, texts, marker_size, separator_size, anchor, spans):
    """Find the fields of a marked line; return whether it has as many as `spans`."""
    return (
        end > begin
        and end - begin >= 2 * marker_size
        and same(begin, texts, marker_size)
        and same(end - marker_size, texts, marker_size)
        and split(begin + marker_size, end - marker_size, texts + marker_size, separator_size, anchor, spans)
        == spans.shape[0]
    )


@inlined
def write(to, texts, pieces, spans, line_end, separator):
    """
    Write the output of a line; return its end, or a negative number for an illegal piece: -1 for the first piece.

    Memory behind a field is read only up to `line_end`, which is 0 for fields that lie apart.
    """
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
        readable = max(end, line_end)
        if form == ESCAPED:
            to = put_escaped(to, begin, end, readable, separator)
            continue
        if form == JSON or form == JSON_ESCAPED:
            to = put_json(to, begin, end, form == JSON_ESCAPED)
            if to < 0:
                return -1 - number
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
            to = copy(to + 1, begin, end - begin, readable)
            put_byte(to, 93)
            to += 1
        else:
            to = copy(to, begin, end - begin, readable)
    return to


@inlined
def accept(rows, out_offsets, state, row, written):
    """Add a cleansed row, which ends after this many bytes of the output, and go on to the next one."""
    rows[state[ROWS]] = row
    state[ROW], state[ROWS], state[WRITTEN] = row + 1, state[ROWS] + 1, written
    put_offset(out_offsets + 4 * state[ROWS], written)


@inlined
def reject(rejects, state, row, rule, detail, begin, end):
    """Add a rejected row with the numbers for its detail, and go on to the next one."""
    number = state[REJECTS]
    rejects[number, 0], rejects[number, 1], rejects[number, 2] = row, rule, detail
    rejects[number, 3], rejects[number, 4] = begin, end
    state[REJECTS], state[ROW] = number + 1, row + 1


@kernel(
    "void(UniTuple(int64, 4), int64, int64[::1], int64[:, ::1], int64[:, ::1], int64, int64, int64, int32[::1],"
    " int64[:, ::1], int64[::1])"
)
def cleanse_marked(lines, texts, shape, checks, pieces, out, out_offsets, capacity, rows, rejects, state):
    """
    Cleanse marked lines from `state[ROW]` on, until all are done or the next one might not fit into the output.

    Args:
        lines: the array, as `parsers.compiled.buffers.addresses` returns it.
        texts: the address of the marker, the separator and the output's literals, one after the other.
        shape: seven numbers: the sizes of the marker and of the separator, the position of the separator's anchor, the
            number of fields, the output separator, the most bytes that a byte of a field becomes in the output, and the
            most bytes written in addition to the fields.
        checks: a row for each check: field, kind, whether the field is trimmed.
        pieces: a row for each piece of the output: the form; the field, or the position of the literal in `texts`; and
            the size of the literal.
        out: the address of the output's bytes.
        out_offsets: the address of the output's offsets; the first is 0.
        capacity: the capacity of the output in bytes, not counting the `SLACK` behind it.
        rows: filled with the cleansed rows; as long as the array.
        rejects: filled with a row for each rejected row: its number; the rule; the number of the check or field; and
            the addresses of the begin and end of the field's text.
        state: the row to resume at and the totals so far; updated.
    """
    marker_size, separator_size, anchor = shape[0], shape[1], shape[2]
    output_separator, growth, extra = shape[4], shape[5], shape[6]
    spans = np.empty((shape[3], 2), np.int64)
    written = state[WRITTEN]
    put_offset(out_offsets + 4 * state[ROWS], written)
    for row in range(state[ROW], rows.shape[0]):
        begin, end = line_at(lines, row)
        if not find_marked(begin, end, texts, marker_size, separator_size, anchor, spans):
            reject(rejects, state, row, FORMAT, 0, 0, 0)
            continue
        failed = first_failed(checks, spans)
        if failed < checks.shape[0]:
            field = checks[failed, 0]
            reject(rejects, state, row, CHECK, failed, spans[field, 0], spans[field, 1])
            continue
        if capacity - written < growth * (end - begin) + extra:
            break
        to = write(out + written, texts, pieces, spans, end, output_separator)
        if to < 0:
            field = pieces[-1 - to, 1]
            reject(rejects, state, row, ILLEGAL, field, spans[field, 0], spans[field, 1])
            continue
        written = to - out
        accept(rows, out_offsets, state, row, written)


@kernel("void(UniTuple(int64, 4), int64, int64[::1], int64[:, :, ::1], uint8[::1])")
def marked(lines, texts, shape, cells, found):
    """
    Find the fields of marked lines, as `cleanse_marked` does.

    Args:
        cells: filled with the addresses of the begin and end of each field of each row.
        found: filled with 1 for each row whose fields were found, otherwise 0.
    """
    for row in range(found.shape[0]):
        begin, end = line_at(lines, row)
        found[row] = find_marked(begin, end, texts, shape[0], shape[1], shape[2], cells[row])


@kernel(
    "void(int64[:, :, ::1], uint8[::1], uint8[:, ::1], int64, int64[::1], int64[:, ::1], int64[:, ::1],"
    " int64, int64, int64, int32[::1], int64[:, ::1], int64[::1])"
)
def cleanse_cells(cells, found, given, texts, shape, checks, pieces, out, out_offsets, capacity, rows, rejects, state):
    """
    Cleanse lines whose fields were found, as `cleanse_marked` does.

    Args:
        cells, found: the fields, as in `parsers.fields.formats.Cells`.
        given: 1 for each row and check of the kind `GIVEN` that the row passes.
    """
    output_separator, growth, extra = shape[4], shape[5], shape[6]
    spans = np.empty((cells.shape[1], 2), np.int64)
    written = state[WRITTEN]
    put_offset(out_offsets + 4 * state[ROWS], written)
    for row in range(state[ROW], rows.shape[0]):
        if not found[row]:
            reject(rejects, state, row, FORMAT, 0, 0, 0)
            continue
        size = 0
        for field in range(spans.shape[0]):
            spans[field, 0], spans[field, 1] = cells[row, field, 0], cells[row, field, 1]
            size += spans[field, 1] - spans[field, 0]
        failed = first_failed(checks, spans)
        for number in range(failed):
            if checks[number, 1] == GIVEN and not given[row, number]:
                failed = number
                break
        if failed < checks.shape[0]:
            field = checks[failed, 0]
            reject(rejects, state, row, CHECK, failed, spans[field, 0], spans[field, 1])
            continue
        if capacity - written < growth * size + extra:
            break
        to = write(out + written, texts, pieces, spans, 0, output_separator)
        if to < 0:
            field = pieces[-1 - to, 1]
            reject(rejects, state, row, ILLEGAL, field, spans[field, 0], spans[field, 1])
            continue
        written = to - out
        accept(rows, out_offsets, state, row, written)


@kernel("void(int64[:, :], int64, int64, int64)")
def gather(spans, trimmed, out, out_offsets):
    """
    Copy spans one after the other, without the blanks around them if they are `trimmed`.

    The output must have `SLACK` bytes more than they need.
    """
    to = out
    put_offset(out_offsets, 0)
    for number in range(spans.shape[0]):
        begin, end = spans[number, 0], spans[number, 1]
        if trimmed:
            begin, end = trim(begin, end)
        to = copy(to, begin, end - begin, end)
        put_offset(out_offsets + 4 * (number + 1), to - out)


@kernel("void(UniTuple(int64, 4), int32[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64[:, :, ::1], uint8[::1])")
def groups(lines, steps, marks, ends, fields, cells, found):
    """
    Find the groups of a regular expression in lines.

    Args:
        lines: the array, as for `cleanse_marked`.
        steps, marks, ends: as in `parsers.compiled.one_pass.Automaton`.
        fields: the field of each group.
        cells, found: filled, as by `marked`.
    """
    places = np.empty(2 * fields.shape[0], np.int64)
    for row in range(found.shape[0]):
        begin, end = line_at(lines, row)
        found[row] = 0
        if end == begin:
            continue
        places[:] = begin
        state = 0
        for at in range(begin, end):
            byte = byte_at(at)
            step = steps[state, byte]
            if step & 1 and step > 0:
                passed = marks[state, byte]
                for bit in range(places.shape[0]):
                    if passed >> bit & 1:
                        places[bit] = at
            state = step >> 1
            if state < 0:
                break
        if state < 0 or ends[state] < 0:
            continue
        for bit in range(places.shape[0]):
            if ends[state] >> bit & 1:
                places[bit] = end
        found[row] = 1
        for group in range(fields.shape[0]):
            cells[row, fields[group], 0], cells[row, fields[group], 1] = places[2 * group], places[2 * group + 1]


# JSON -----------------------------------------------------------------------------------------------------------------


@inlined
def after_blanks(at, end):
    while at < end:
        byte = byte_at(at)
        if not (byte == 32 or byte == 9 or byte == 10 or byte == 13):
            break
        at += 1
    return at


@inlined
def hexadecimal_at(at, end):
    """Return the number that four hexadecimal digits form, or -1."""
    if at + 4 > end:
        return -1
    number = 0
    for i in range(4):
        byte = byte_at(at + i)
        if not is_hexadecimal(byte):
            return -1
        number = number * 16 + (byte - 48 if byte <= 57 else (byte | 32) - 87)
    return number


@inlined
def string_end(at, end):
    """Return the closing quote of the JSON string whose text begins here, or 0; and whether the text has escapes."""
    escaped = False
    while True:
        at = next_special(at, end)
        if at == end:
            return 0, False
        byte = byte_at(at)
        if byte == 34:
            return at, escaped
        if byte != 92 or at + 1 == end:
            return 0, False
        escaped = True
        letter = byte_at(at + 1)
        if letter == 117 and hexadecimal_at(at + 2, end) >= 0:
            at += 6
        elif _MEANINGS[letter] != 0:
            at += 2
        else:
            return 0, False


@inlined
def put_character(to, code):
    """Write a Unicode character in UTF-8; return its end."""
    if code < 0x80:
        put_byte(to, code)
        return to + 1
    size = 2 if code < 0x800 else 3 if code < 0x10000 else 4
    for i in range(size - 1, 0, -1):
        put_byte(to + i, 0x80 | code & 63)
        code >>= 6
    put_byte(to, 0xF00 >> size | code)  # a one for each byte, a zero, and what is left
    return to + size


@inlined
def put_unescaped(to, begin, end):
    """Write a valid JSON string's text without its escapes; return its end, or -1 if a surrogate is alone in it."""
    at = begin
    while at < end:
        part = next_special(at, end)
        to = copy(to, at, part - at, end)
        at = part
        if at == end:
            break
        letter = byte_at(at + 1)
        if letter != 117:
            put_byte(to, _MEANINGS[letter])
            to += 1
            at += 2
            continue
        code = hexadecimal_at(at + 2, end)
        at += 6
        if 0xD800 <= code <= 0xDFFF:
            low = -1
            if code <= 0xDBFF and at + 6 <= end and byte_at(at) == 92 and byte_at(at + 1) == 117:
                low = hexadecimal_at(at + 2, end)
            if not 0xDC00 <= low <= 0xDFFF:
                return -1
            code = 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
            at += 6
        to = put_character(to, code)
    return to


@inlined
def is_word(at, end, text, size):
    return at + size <= end and same(at, text, size)


@inlined
def member_of(parent, begin, size, texts, paths):
    """Return the index in `paths` of an object's member, or -1 if nobody reads it."""
    for number in range(paths.shape[0]):
        if paths[number, 0] == parent and paths[number, 2] == size and same(texts + paths[number, 1], begin, size):
            return number
    return -1


@inlined
def find_scalar(at, end, texts, to):
    """
    Find the text of a string, number, true or false, or nothing for null.

    Return its begin and end; the address after the value, or 0 if there is none here; and the end of the scratch memory
    (-1 if a surrogate is alone in the string).
    """
    byte = byte_at(at) if at < end else 0
    if byte == 34:
        last, escaped = string_end(at + 1, end)
        if last == 0 or not escaped:
            return at + 1, last, last + 1 if last > 0 else 0, to
        written = put_unescaped(to, at + 1, last)
        return to, written, last + 1, written
    if is_word(at, end, texts, 4):
        return at, at, at + 4, to
    if is_word(at, end, texts + 4, 4):
        return at, at + 4, at + 4, to
    after = at + 5 if is_word(at, end, texts + 8, 5) else number_end(at, end)
    return at, after, after, to


@inlined
def find_name(at, end, parent, texts, paths, to):
    """
    Find the name of a member, and what separates it from its value.

    Return its index in `paths`, or -1 if nobody reads the member, and the address of the value, or 0 if there is none.
    """
    if at == end or byte_at(at) != 34:
        return -1, 0
    first, last, at, written = find_scalar(at, end, texts, to)
    at = after_blanks(at, end) if at > 0 else end
    if at == end or byte_at(at) != 58:
        return -1, 0
    is_known = parent >= 0 and written >= 0  # a name with a lone surrogate is not one of ours
    return member_of(parent, first, last - first, texts, paths) if is_known else -1, after_blanks(at + 1, end)


@inlined
def find_members(begin, end, texts, paths, seen, mark, opened, spans, to):
    """
    Find the members of a line's JSON object; return the end of the scratch memory, or -1 if the line is to be refused.

    Strings with escapes are written to the scratch memory from `to` on.
    """
    at = after_blanks(begin, end)
    if at == end or byte_at(at) != 123 or not is_utf8(begin, end):
        return -1
    for field in range(spans.shape[0]):
        spans[field, 0], spans[field, 1] = begin, begin
    depth, path = 0, 0
    while True:
        # A value begins here. Its path is `path`, or -1 if nobody reads it.
        field = paths[path, 3] if path >= 0 else -1
        byte = byte_at(at) if at < end else 0
        is_open = False
        if byte == 123 or byte == 91:
            if field >= 0 or depth == MOST_DEPTH:
                return -1
            opened[depth, 0], opened[depth, 1] = byte, path if byte == 123 else -1
            at = after_blanks(at + 1, end)
            is_open = at == end or byte_at(at) != byte + 2  # {} and [] are values like any other
            depth += is_open
            at += not is_open
        else:
            first, last, at, written = find_scalar(at, end, texts, to)
            if at == 0 or (field >= 0 and written < 0):
                return -1
            if field >= 0:
                spans[field, 0], spans[field, 1], to = first, last, written
        while not is_open:
            at = after_blanks(at, end)
            if depth == 0:
                return to if at == end else -1
            byte = byte_at(at) if at < end else 0
            is_open = byte == 44
            if not is_open and byte != opened[depth - 1, 0] + 2:
                return -1
            depth -= not is_open
            at += 1
        path = -1
        at = after_blanks(at, end)
        if opened[depth - 1, 0] == 123:
            path, at = find_name(at, end, opened[depth - 1, 1], texts, paths, to)
            if at == 0 or (path >= 0 and seen[path] == mark):
                return -1
            if path >= 0:
                seen[path] = mark


@kernel("void(UniTuple(int64, 4), int64, int64[:, ::1], int64[:, :, ::1], uint8[::1], int64)")
def members(lines, texts, paths, cells, found, scratch):
    """
    Find members of the JSON objects of lines.

    Args:
        lines: the array, as for `cleanse_marked`.
        texts: the address of `nulltruefalse` and the names of the paths, one after the other.
        paths: a row for each object and member that is read, the line's own object first: the row of the object around
            it, -1 for the first; the position and size of its name in `texts`; its field, or -1 for an object.
        cells, found: filled, as by `marked`.
        scratch: the address of memory for the strings with escapes: as many bytes as all lines, and `SLACK` more.
    """
    seen = np.zeros(paths.shape[0], np.int64)
    opened = np.empty((MOST_DEPTH, 2), np.int64)
    for row in range(found.shape[0]):
        begin, end = line_at(lines, row)
        found[row] = 0
        if end == begin:
            continue
        to = find_members(begin, end, texts, paths, seen, row + 1, opened, cells[row], scratch)
        if to >= 0:
            found[row], scratch = 1, to


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


@kernel("int64(UniTuple(int64, 4), int64[:, ::1], uint8[::1])")
def bodies(values, spans, kinds):
    """
    Find the bodies of the values that are Flume events; return how many there are.

    Args:
        values: the array, as `parsers.compiled.buffers.addresses` returns it.
        spans: filled with the addresses of the begin and end of each body, or of the value itself if it is no event.
        kinds: filled with the kind of each value. Null and empty values are `EVENT`, but not counted in the result.
    """
    events = 0
    for row in range(kinds.shape[0]):
        begin, end = value_at(values, row)
        spans[row, 0], spans[row, 1] = begin, end
        kinds[row] = EVENT
        if end > begin:
            kinds[row] = body(begin, end, spans, row)
            events += kinds[row] == EVENT
    return events


@kernel("void(UniTuple(int64, 4), uint8[::1], uint8[::1], int64[:, ::1])")
def headers(values, kinds, name, spans):
    """
    Find one header in every value; of several with its name, the last one counts.

    Args:
        values, kinds: the array and the kind of each value, as for `bodies`.
        name: the name of the header, in UTF-8.
        spans: filled with the addresses of the begin and end of each header's value, 0 if there is none.
    """
    for row in range(kinds.shape[0]):
        spans[row, 0], spans[row, 1] = 0, 0
        at, end = value_at(values, row)
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
                    spans[row, 0], spans[row, 1] = at, at + size
                at += size
            count, at = number_at(at, end)
