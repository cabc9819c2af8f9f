"""A kernel never reads outside its line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

ON_THE_EDGE = """
import ctypes, mmap, sys
import pyarrow as pa
from parsers.delimited import Delimited
from parsers.flume.envelope import wrap
from parsers.idc_access_log import FIELDS, IdcAccessLog

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
memory = mmap.mmap(-1, 3 * PAGE)
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
for page in (0, 2):
    assert libc.mprotect(base + page * PAGE, PAGE, 0) == 0

def at_the_edges(line):
    for start in (PAGE, 2 * PAGE - len(line)):
        memory[start : start + len(line)] = line
        values = pa.foreign_buffer(base + start, len(line), memory)
        offsets = pa.py_buffer((0).to_bytes(4, "little") + len(line).to_bytes(4, "little"))
        yield pa.Array.from_buffers(pa.binary(), 1, [None, offsets, values])

idc = IdcAccessLog(engine="compiled")
csv = Delimited(fields=["a", "b"], output="{b}|{a}", escape=["a"], engine="compiled")
SEPARATOR = b"<<<!>>>,<<<!>>>"
url = b"http://a/\\xe4\\xb8|" + b"x" * 40
good = [b"", b"2", b"20171112132902", b"::1", b"1.2.3.4", b"1", b"80", *[b""] * 6, url, b""]
good = b"<<<!>>>" + SEPARATOR.join(good) + b"<<<!>>>"
lines = [good[:n] for n in range(len(good) + 1)] + [good[n:] for n in range(len(good))]
lines += [b"x" * n + b"," + b"y" * m for n in (0, 1, 31, 63, 64) for m in (0, 1, 15, 16, 17, 31, 33, 64)]
lines += [b"\\xf0\\x9f\\x98"[:n] + b"," for n in range(4)] + [b"," + b"\\xf0\\x9f\\x98"[:n] for n in range(4)]
lines += [b"\\x02\\x02k\\x02v\\x00\\x80"[:n] for n in range(7)]
for line in lines:
    for array in at_the_edges(line):
        for parser in (idc, csv, wrap(csv, "auto"), wrap(csv, "flume-avro")):
            parser.parse(array)
print("done", len(lines))
"""


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in its own process, which may crash."""
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | environment,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="memory is protected in Linux's way")
def test_a_kernel_stays_inside_its_line() -> None:
    """A line with forbidden memory on both sides is parsed without a crash, at every length."""
    done = run(ON_THE_EDGE)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done")
