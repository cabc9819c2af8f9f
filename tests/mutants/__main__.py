"""`python -m tests.mutants`: hunts mutants in a copy of the project, so that none ever appears in the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.hunt import MODULES

LIST_FILES = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")


def main() -> int:
    """Run the hunt in a copy and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="winnow-mutants-") as copy:
        listed = subprocess.run(LIST_FILES, capture_output=True, text=True, check=True).stdout
        compiled = [each for module in MODULES for each in Path(module).rglob("__pycache__/*.nb[ci]")]
        for file in (*filter(Path.is_file, map(Path, listed.split("\0"))), *compiled):  # not one that was removed since
            Path(copy, file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, Path(copy, file))
        Path(copy, ".venv").symlink_to(sys.prefix)
        hunt = [sys.executable, "-m", "tests.mutants.hunt", *sys.argv[1:]]
        return subprocess.run(hunt, cwd=copy, env={**os.environ, "PYTHONPATH": copy}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
