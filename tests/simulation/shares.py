"""The schedules that `make test` runs, in two halves, each in a process of its own: a simulation replaces clocks."""

from __future__ import annotations

import subprocess
import sys

SCHEDULES = 5_000
"""All together; one takes 25 ms of CPU time."""


def run_module(*options: str) -> tuple[int, str]:
    """Run `python -m tests.simulation`; return its exit code and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *options], capture_output=True, text=True, check=False, timeout=500
    )
    return done.returncode, done.stdout + done.stderr


def require_no_anomaly(half: int) -> None:
    """Run one half of the schedules."""
    share = SCHEDULES // 2
    code, said = run_module("--seed", str(half * share), "--schedules", str(share), "--jobs", "1")
    assert 0 == code, said
