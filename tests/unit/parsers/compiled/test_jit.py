"""Kernels work with and without a cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

SQUARE = """
from pathlib import Path
import sys
sys.path.insert(0, {folder!r})
Path({folder!r}, "square.py").write_text('''
from parsers.compiled.jit import kernel

@kernel("int64(int64)")
def square(x):
    return x * x
''')
{prepare}
from square import square
print(square(7))
"""


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a separate process, which may crash."""
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    "prepare",
    [
        "import numba.core.caching as c; c.CacheImpl._locator_classes = []",
        "import numba.core.caching as c; c.Cache.save_overload = lambda *_: (_ for _ in ()).throw(OSError('full'))",
        "import numba.core.caching as c; c.Cache.load_overload = lambda *_: (_ for _ in ()).throw(EOFError('worn'))",
    ],
    ids=["nowhere to cache", "disk full", "damaged cache"],
)
def test_a_kernel_works_without_its_cache(tmp_path: Path, prepare: str) -> None:
    """If the cache is not writable or is damaged, a kernel is compiled and works."""
    done = run(SQUARE.format(folder=str(tmp_path), prepare=prepare))

    assert (done.stdout, done.returncode) == ("49\n", 0), done.stderr


def test_a_kernel_is_loaded_from_the_cache(tmp_path: Path) -> None:
    """A compiled kernel is stored in the folder `NUMBA_CACHE_DIR`."""
    cache = tmp_path / "cache"

    run(SQUARE.format(folder=str(tmp_path), prepare=""), NUMBA_CACHE_DIR=str(cache))

    assert {path.suffix for path in cache.rglob("*.nb*")} == {".nbc", ".nbi"}
