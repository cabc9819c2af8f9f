"""The kernels of the bulk backend never read or write outside a buffer, and never mistake null for empty."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Recompile only these kernels: the parsers' kernels take four times as long. Numba's cache does not separate code with
# bounds checks from code without, so they need a folder of their own.
WITH_BOUNDS_CHECKS = """
import numba, parsers.compiled.kernels
numba.config.BOUNDSCHECK, numba.config.CACHE_DIR = 1, {folder!r}
import numpy as np
from app.kafka.bulk import kernels
error, nowhere = np.ones(9, np.int64), np.empty(0, np.int64)
try:
    kernels.scan(np.array([error.ctypes.data]), nowhere, nowhere, np.empty((0, 3), np.int64), np.empty(7, np.int64))
except IndexError:
    pass
else:
    raise SystemExit("nothing checks the bounds")
"""

# Messages, values and keys end or start right at forbidden memory. librdkafka's functions are replaced.
ON_THE_EDGE = """
import ctypes as c, mmap, random
import numpy as np, pyarrow as pa
from app.kafka.bulk import kernels as kernel, native
from app.kafka.bulk.consumer import _Column

PAGE = mmap.PAGESIZE
libc = c.CDLL(None)
libc.mprotect.argtypes = [c.c_void_p, c.c_size_t, c.c_int]
keep = []

def guarded(data, at_end):
    pages = len(data) // PAGE + 1
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    keep.append(memory)
    base = c.addressof(c.c_char.from_buffer(memory))
    for page in (0, pages + 1):
        assert libc.mprotect(base + page * PAGE, PAGE, 0) == 0
    start = (pages + 1) * PAGE - len(data) if at_end else PAGE
    memory[start : start + len(data)] = data
    return base + start

@c.CFUNCTYPE(c.c_int64, c.c_void_p, c.c_void_p)
def timestamp_of(message, kind):
    assert kind is None
    return native.Message.from_address(message).offset * 10 - 1

destroyed = []
@c.CFUNCTYPE(None, c.c_void_p)
def destroy_of(message):
    destroyed.append(message)

class Record(c.Structure):
    _fields_ = [("kind", c.c_int), ("pointer", c.c_void_p), ("size", c.c_int64), ("more", c.c_int64), ("rest", c.c_int64 * 5)]

def text(pointer, size):
    return None if pointer is None else c.string_at(pointer, size)

produced = []
refusals = set()
@c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t)
def produceva(client, fields, count):
    if len(produced) in refusals:
        refusals.remove(len(produced))
        return 77
    record, headers = {}, []
    for i in range(count):
        f = Record.from_address(fields + i * c.sizeof(Record))
        if f.kind in (native.VALUE, native.KEY):
            record[f.kind] = text(f.pointer, f.size)
        elif f.kind == native.HEADER:
            name = c.string_at(f.pointer)
            headers.append((name, text(f.size or None, f.more)))
        elif f.kind == native.TIMESTAMP:
            record[f.kind] = f.pointer or 0
    produced.append((record[native.VALUE], record[native.KEY], record[native.TIMESTAMP], headers))
    return None

assert c.sizeof(Record) == 72
randomly = random.Random(1)
def anything():
    return randomly.choice([None, b"", randomly.randbytes(randomly.choice([1, 7, 8, 63, 64, 65, 300, PAGE]))])

def message(value, key, *, offset, partition, topic, error=0):
    at_end = bool(randomly.getrandbits(1))
    where = [None if data is None else guarded(data, at_end) for data in (value, key)]
    made = native.Message(error, topic, partition, where[0], len(value or b""), where[1], len(key or b""), offset, None)
    return guarded(bytes(made), at_end)

for count in (0, 1, 7, 8, 9, 40):
    for nulls in (True, False):
        rows, others, addresses = [], [], []
        for n in range(count):
            value, key = anything(), anything()
            if not nulls:
                value, key = value or b"v", key or b"k"
            if randomly.random() < 0.2:
                addresses.append(message(b"an error's text", None, offset=n, partition=1, topic=5, error=-191))
                others.append(addresses[-1])
            else:
                place = randomly.choice([(5, 0), (5, 1), (6, 1)])
                addresses.append(message(value, key, offset=n, partition=place[1], topic=place[0]))
                rows.append((addresses[-1], place, value, key, n))
        messages = np.array(addresses, np.int64)
        records, rest, runs = np.empty(count, np.int64), np.empty(count, np.int64), np.empty((count, 3), np.int64)
        found = np.empty(7, np.int64)
        kernel.scan(messages, records, rest, runs, found)
        n = int(found[kernel.RECORDS])
        assert records[:n].tolist() == [row[0] for row in rows]
        assert rest[: found[kernel.OTHERS]].tolist() == others
        starts = runs[: found[kernel.RUNS]].tolist()
        changes = [i for i in range(n) if i == 0 or rows[i][1] != rows[i - 1][1]]
        assert starts == [[*rows[i][1], i] for i in changes]
        offsets, stamps = np.empty(n, np.int64), np.empty(n, np.int64)
        values = _Column(n, int(found[kernel.VALUE_BYTES]), int(found[kernel.NULL_VALUES]))
        keys = _Column(n, int(found[kernel.KEY_BYTES]), int(found[kernel.NULL_KEYS]))
        kernel.gather(records[:n], c.cast(timestamp_of, c.c_void_p).value, offsets, stamps,
                      *values.buffers, *keys.buffers)
        assert values.array().to_pylist() == [row[2] for row in rows]
        assert keys.array().to_pylist() == [row[3] for row in rows]
        assert offsets.tolist() == [row[4] for row in rows]
        assert stamps.tolist() == [row[4] * 10 - 1 for row in rows]
        kernel.destroy(c.cast(destroy_of, c.c_void_p).value, messages)
        assert destroyed == addresses
        destroyed.clear()

def at_the_edge(texts):
    whole = pa.array(texts, pa.binary())
    validity, ends, data = whole.buffers()
    buffers = [validity and pa.foreign_buffer(guarded(validity.to_pybytes()[: len(texts) // 8 + 1], True), len(texts) // 8 + 1),
               pa.foreign_buffer(guarded(ends.to_pybytes()[: 4 * (len(texts) + 1)], True), 4 * (len(texts) + 1)),
               data and pa.foreign_buffer(guarded(data.to_pybytes()[: data.size], True), data.size)]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)

from app.kafka.bulk import sender as bulk
from app.records import OutgoingRecord, Lines

PRODUCEVA = c.cast(produceva, c.c_void_p).value
bulk._PRODUCEVA = PRODUCEVA
native.topic_new = lambda *_: 9
class Full:
    def code(self): return native.QUEUE_FULL
def take_error(error):
    assert error == 77
    return Full()
native.take_error = take_error
sender = bulk.BulkSender.__new__(bulk.BulkSender)
sender._mark = None
sender._line = sender._dead_letter = bulk._Target(1, "t", 0)

for count in (1, 2, 9, 64):
    for first in (0, 1):
        texts, names = [anything() for _ in range(count)], [anything() for _ in range(2 * count)]
        picked = np.array(sorted(randomly.sample(range(2 * count), count)), np.int32)
        columns = [("n%d" % h, [anything() for _ in names]) for h in range(randomly.randrange(4))]
        lines = Lines(at_the_edge(texts).slice(first), picked[first:], at_the_edge(names),
                      np.array([randomly.choice([-1, 0, 5, 2**41]) for _ in names], np.int64),
                      [(name, at_the_edge(column)) for name, column in columns])
        expected = [(texts[first + i], names[row], max(int(lines.timestamps[row]), 0),
                     [(name.encode(), column[row]) for name, column in columns if column[row] is not None])
                    for i, row in enumerate(lines.rows.tolist())]
        refusals.update({0, count // 2})
        at = 0
        while (come := sender.offer(lines, at)) < len(lines):
            assert come == len(produced)
            at = come
        refusals.clear()
        assert produced == expected
        produced.clear()
        dead_letters = [OutgoingRecord(anything(), anything(), [("n%d" % h, anything()) for h in range(randomly.randrange(9))], n - 1)
                   for n in range(count)]
        refusals.update({0, count // 2})
        at = 0
        while (come := sender.offer_dead_letters(dead_letters, at)) < count:
            at = come
        refusals.clear()
        assert produced == [(l.value, l.key, max(l.timestamp, 0), [(k.encode(), v) for k, v in l.headers]) for l in dead_letters]
        produced.clear()
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the test protects memory with Linux's mprotect")
@pytest.mark.parametrize("checked", [False, True], ids=["as in service", "under Numba's bounds checking"])
def test_kernels_stay_inside_their_buffers(tmp_path: Path, checked: bool) -> None:
    """All kernels process random records next to forbidden memory safely, also after refusals."""
    script = (WITH_BOUNDS_CHECKS.format(folder=str(tmp_path)) if checked else "") + ON_THE_EDGE

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)

    assert (0, "done\n") == (done.returncode, done.stdout), done.stderr
    assert checked == any(tmp_path.rglob("*.nbc")), "what is checked must have been compiled for it"
