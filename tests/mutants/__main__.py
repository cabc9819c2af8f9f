"""`python -m tests.mutants`: hunts mutants in a copy of the project, so that none ever appears in the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PARTS = ("app", "parsers", "tests", "docs")


def main() -> int:
    """Run the hunt in a copy and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="winnow-mutants-") as copy:
        for part in PARTS:
            shutil.copytree(part, Path(copy, part))
        shutil.copy2("pyproject.toml", copy)
        hunt = [sys.executable, "-m", "tests.mutants.hunt", *sys.argv[1:]]
        return subprocess.run(hunt, cwd=copy, env={**os.environ, "PYTHONPATH": copy}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
