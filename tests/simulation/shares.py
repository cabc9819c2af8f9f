"""The schedules that `make test` runs, in two halves, each in a process of its own: a simulation replaces clocks."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCHEDULES = 5_000
"""All together; one takes about 30 ms of CPU time."""
PATIENT = pytest.mark.timeout(3_000)
"""Half of them take more than a minute of CPU time, and a busy machine gives little of it."""


def run_module(*options: str) -> tuple[int, str]:
    """Run `python -m tests.simulation`; return its exit code and what it says."""
    command = [sys.executable, "-m", "tests.simulation", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def require_no_anomaly(half: int) -> None:
    """Run one half of the schedules."""
    share = SCHEDULES // 2
    code, said = run_module("--seed", str(half * share), "--schedules", str(share), "--jobs", "1")
    assert 0 == code, said
