"""
The compiled loops over librdkafka's records: they gather consumed records into flat buffers, and produce from them.

Records are addresses of `rd_kafka_message_t`, whose layout is public. Null pointers are never read, and nothing beyond
the given lengths. librdkafka's functions are passed as addresses too, so that Numba can cache the compiled kernels. As
in `parsers.compiled.kernels`, everything that they are compiled from is in this file.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: ANN001, ANN201, ANN202, PLR0917
# llvmlite has no types and Numba infers the others. Arrays are passed to kernels as their parts.

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from parsers.compiled.jit import inlined, instruction, kernel

RECORDS, OTHERS, RUNS, VALUE_BYTES, KEY_BYTES, NULL_VALUES, NULL_KEYS = range(7)
"""The indices of `found`, the counts of a scan."""
ROW, ERROR = range(2)
"""The indices of `state`, the progress of producing."""
FLAGS_FIELD, TOPIC_FIELD, PARTITION_FIELD, TIMESTAMP_FIELD, KEY_FIELD, VALUE_FIELD = range(6)
"""The first rows of `fields`; the headers' rows follow."""
Column = tuple[int, int, int, int]
"""
An Arrow array: the addresses of its bytes (0 if there are none), of its first offset, and of its validity bitmap (0 if
it has no nulls), and the index of its first bit there.
"""

# The offsets of the members of rd_kafka_message_t.
_ERROR, _TOPIC, _PARTITION, _VALUE, _VALUE_SIZE, _KEY, _KEY_SIZE, _OFFSET = 0, 8, 16, 24, 32, 40, 48, 56
_AHEAD = 8

_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))


# Instructions ---------------------------------------------------------------------------------------------------------


def _pointer(builder, address, kind=_I8):
    return builder.inttoptr(address, kind.as_pointer())


def _call(builder, function, result, args):
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(_pointer(builder, function, kind), args)


def _load(kind, extend):
    """Return an instruction that loads a number at an address."""

    @instruction(types.int64(types.int64))
    def load(builder, address):
        return extend(builder, builder.load(_pointer(builder, address, kind), align=1))

    return load


word_at = _load(_I64, lambda _, word: word)
number_at = _load(_I32, lambda builder, number: builder.sext(number, _I64))
byte_at = _load(_I8, lambda builder, byte: builder.zext(byte, _I64))


@instruction(types.int64(types.int64))
def prefetch(builder, address):
    """Prefetch the cache line of an address, which may be invalid."""
    kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
    fetch = builder.module.declare_intrinsic("llvm.prefetch", [_I8.as_pointer()], kind)
    builder.call(fetch, [_pointer(builder, address), *(ir.Constant(_I32, each) for each in (0, 3, 1))])
    return address


@instruction(types.int64(types.int64, types.int64, types.int64))
def copy(builder, to, source, size):
    move = builder.module.declare_intrinsic("llvm.memcpy", [_I8.as_pointer(), _I8.as_pointer(), _I64])
    builder.call(move, [_pointer(builder, to), _pointer(builder, source), size, ir.Constant(_I1, 0)])
    return to


@instruction(types.int64(types.int64, types.int64))
def call_timestamp(builder, function, message):
    """Call rd_kafka_message_timestamp, ignoring the timestamp's type."""
    return _call(builder, function, _I64, [message, ir.Constant(_I64, 0)])


@instruction(types.int64(types.int64, types.int64))
def call_destroy(builder, function, message):
    _call(builder, function, ir.VoidType(), [message])
    return message


@instruction(types.int64(types.int64, types.int64, types.int64, types.int64))
def call_produceva(builder, function, client, fields, count):
    """Call rd_kafka_produceva; return its error, or 0."""
    return _call(builder, function, _I64, [client, fields, count])


# Consuming ------------------------------------------------------------------------------------------------------------


@kernel("void(int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[::1])")
def scan(
    messages: NDArray[np.int64],
    records: NDArray[np.int64],
    others: NDArray[np.int64],
    runs: NDArray[np.int64],
    found: NDArray[np.int64],
) -> None:
    """
    Separate records from events, and count both.

    Args:
        messages: the addresses of everything consumed.
        records: filled with the addresses of the records.
        others: filled with the addresses of the rest: ends of partitions and errors.
        runs: filled with a row for each run of records of one partition: topic handle, partition, first record.
        found: filled with the counts, at the indices named above.
    """
    found[:] = 0
    topic = partition = 0
    for i in range(messages.shape[0]):
        prefetch(messages[min(i + _AHEAD, messages.shape[0] - 1)])
        message = messages[i]
        if number_at(message + _ERROR) != 0:
            others[found[OTHERS]] = message
            found[OTHERS] += 1
            continue
        if word_at(message + _TOPIC) != topic or number_at(message + _PARTITION) != partition:
            topic, partition = word_at(message + _TOPIC), number_at(message + _PARTITION)
            run = found[RUNS]
            runs[run, 0], runs[run, 1], runs[run, 2] = topic, partition, found[RECORDS]
            found[RUNS] = run + 1
        records[found[RECORDS]] = message
        found[RECORDS] += 1
        if word_at(message + _VALUE) == 0:
            found[NULL_VALUES] += 1
        else:
            found[VALUE_BYTES] += word_at(message + _VALUE_SIZE)
        if word_at(message + _KEY) == 0:
            found[NULL_KEYS] += 1
        else:
            found[KEY_BYTES] += word_at(message + _KEY_SIZE)


@inlined
def append(source, size, row, texts, ends, validity):
    """Append one value or key to an Arrow array's buffers; a null has no bytes."""
    end = np.int64(ends[row])
    if source != 0:
        copy(texts.ctypes.data + end, source, size)
        end += size
        if validity.shape[0] != 0:
            validity[row >> 3] |= np.uint8(1 << (row & 7))
    ends[row + 1] = end


@kernel(
    "void(int64[::1], int64, int64[::1], int64[::1],"
    " uint8[::1], int32[::1], uint8[::1], uint8[::1], int32[::1], uint8[::1])"
)
def gather(
    records: NDArray[np.int64],
    timestamp_of: int,
    offsets: NDArray[np.int64],
    timestamps: NDArray[np.int64],
    values: NDArray[np.uint8],
    value_ends: NDArray[np.int32],
    value_validity: NDArray[np.uint8],
    keys: NDArray[np.uint8],
    key_ends: NDArray[np.int32],
    key_validity: NDArray[np.uint8],
) -> None:
    """
    Copy records into flat buffers, row by row.

    Args:
        records: their addresses, in row order.
        timestamp_of: the address of rd_kafka_message_timestamp.
        offsets, timestamps: filled; a record without a timestamp gets -1.
        values, keys: filled with the bytes; exactly as long as `scan` has counted.
        value_ends, key_ends: filled with Arrow's offsets; one more than there are rows, the first is 0.
        value_validity, key_validity: Arrow's bitmaps, zeroed; empty if there are no nulls.
    """
    value_ends[0] = key_ends[0] = 0
    for row in range(records.shape[0]):
        prefetch(records[min(row + _AHEAD, records.shape[0] - 1)])
        record = records[row]
        offsets[row] = word_at(record + _OFFSET)
        timestamps[row] = call_timestamp(timestamp_of, record)
        append(word_at(record + _VALUE), word_at(record + _VALUE_SIZE), row, values, value_ends, value_validity)
        append(word_at(record + _KEY), word_at(record + _KEY_SIZE), row, keys, key_ends, key_validity)


@kernel("void(int64, int64[::1])")
def destroy(destroy_of: int, messages: NDArray[np.int64]) -> None:
    """Free messages; `destroy_of` is the address of rd_kafka_message_destroy."""
    for i in range(messages.shape[0]):
        prefetch(messages[min(i + _AHEAD, messages.shape[0] - 1)])
        call_destroy(destroy_of, messages[i])


# Producing ------------------------------------------------------------------------------------------------------------


@inlined
def set_bytes(fields, field, word, column, row):
    """Set two words of a field to the address and size of the bytes in a row. Null and empty differ."""
    texts, ends, validity, first = column
    fields[field, word], fields[field, word + 1] = 0, 0
    bit = first + row
    if validity == 0 or (byte_at(validity + (bit >> 3)) >> (bit & 7)) & 1 != 0:
        begin, end = number_at(ends + 4 * row), number_at(ends + 4 * row + 4)
        # An array of empty texts may have no buffer. Any address but null means "empty".
        fields[field, word], fields[field, word + 1] = texts + begin if texts != 0 else ends, end - begin


@kernel(
    "void(int64, int64, int64[:, ::1], UniTuple(int64, 4), UniTuple(int64, 4),"
    " int64[:, ::1], int32[::1], int64[::1], int64[::1])"
)
def produce(
    produceva: int,
    client: int,
    fields: NDArray[np.int64],
    values: Column,
    keys: Column,
    headers: NDArray[np.int64],
    rows: NDArray[np.int32],
    timestamps: NDArray[np.int64],
    state: NDArray[np.int64],
) -> None:
    """
    Produce values from `state[ROW]` on, in order, until all are queued or one is refused.

    Args:
        produceva: the address of rd_kafka_produceva.
        client: the `rd_kafka_t *`.
        fields: the fields of a record, in the order named above, then one row for each header; patched for each record.
        headers: one row for each header: the address of its zero-terminated name, then its `Column`. A header whose
            value is null is left out.
        rows: for each value, the row of its key, timestamp and headers.
        timestamps: in milliseconds; a record without one gets the current time.
        state: where to resume, updated; and the error that refused that row, or 0.
    """
    state[ERROR] = 0
    for number in range(state[ROW], rows.shape[0]):
        row = np.int64(rows[number])
        set_bytes(fields, VALUE_FIELD, 1, values, number)
        set_bytes(fields, KEY_FIELD, 1, keys, row)
        fields[TIMESTAMP_FIELD, 1] = max(timestamps[row], np.int64(0))  # librdkafka reads 0 as "now"
        field = VALUE_FIELD + 1
        for header in range(headers.shape[0]):
            column = headers[header]
            set_bytes(fields, field, 2, (column[1], column[2], column[3], column[4]), row)
            if fields[field, 2] != 0:
                fields[field, 1] = column[0]
                field += 1
        error = call_produceva(produceva, client, fields.ctypes.data, field)
        if error != 0:
            state[ROW], state[ERROR] = number, error
            return
    state[ROW] = rows.shape[0]


@kernel("void(int64, int64, int64[:, ::1], UniTuple(int64, 4), int32[::1], int64[::1], int64[::1])")
def produce_dead_letters(
    produceva: int,
    client: int,
    fields: NDArray[np.int64],
    parts: Column,
    begins: NDArray[np.int32],
    timestamps: NDArray[np.int64],
    state: NDArray[np.int64],
) -> None:
    """
    Produce records with headers from `state[ROW]` on, in order, until all are queued or one is refused.

    Args:
        produceva, client, timestamps, state: as for `produce`, with a row for each record.
        fields: as for `produce`, followed by as many header rows as the record with the most headers has.
        parts: for each record its value, its key, and each header's zero-terminated name and value.
        begins: the index of each record's first part, and finally the number of parts.
    """
    texts, ends, _, _ = parts
    state[ERROR] = 0
    for number in range(state[ROW], timestamps.shape[0]):
        part, field = np.int64(begins[number]), VALUE_FIELD + 1
        set_bytes(fields, VALUE_FIELD, 1, parts, part)
        set_bytes(fields, KEY_FIELD, 1, parts, part + 1)
        fields[TIMESTAMP_FIELD, 1] = max(timestamps[number], np.int64(0))
        for name in range(part + 2, np.int64(begins[number + 1]), 2):
            fields[field, 1] = texts + number_at(ends + 4 * name)
            set_bytes(fields, field, 2, parts, name + 1)
            field += 1
        error = call_produceva(produceva, client, fields.ctypes.data, field)
        if error != 0:
            state[ROW], state[ERROR] = number, error
            return
    state[ROW] = timestamps.shape[0]
