"""A kernel never reads or writes outside its buffers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

PAST_THE_END = """
import ctypes
from tests.fuzz.guarded import Guarded
memory = Guarded()
at = memory.put(b"xy", at_end={at_end})
ctypes.string_at(at, 2)
print("inside", flush=True)
ctypes.string_at(at + {step}, 1)
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a separate process, which may crash."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | environment,
    )


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is protected in Linux's way")


@pytest.mark.parametrize(("at_end", "step"), [(True, 2), (False, -1)])
def test_the_memory_beside_a_buffer_is_forbidden(at_end: bool, step: int) -> None:
    """Reading a byte after the end or before the beginning kills the process."""
    done = run("-c", PAST_THE_END.format(at_end=at_end, step=step))

    assert ("inside\n", -signal.SIGSEGV) == (done.stdout, done.returncode)


def test_a_kernel_stays_inside_its_buffers() -> None:
    """Values of every length, valid and damaged, are parsed with protected memory on both sides of each buffer."""
    done = run("-m", "tests.fuzz.guarded", "3000", "1")

    assert done.returncode == 0, done.stderr
    assert "between forbidden pages" in done.stdout


def test_a_kernel_stays_inside_its_arrays(tmp_path: Path) -> None:
    """The same with kernels that check each index, in a separate cache, because Numba's does not tell them apart."""
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_OPT": "0"}  # compiles faster
    done = run("-m", "tests.fuzz.guarded", "1000", "2", **checked)

    assert done.returncode == 0, done.stderr
    assert "with bounds checks" in done.stdout
