"""`winnow audit` of records whose times are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from app.cli import main
from tests.independent import Written, line

BEGAN = 1_760_000_000_000


def records(begin: int, end: int) -> list[Written]:
    """Return numbered records of three partitions, one each millisecond since BEGAN. Every fifth is invalid."""
    return [Written(line(n) if n % 5 else b"rubbish %d" % n, b"k", n % 3, BEGAN + n) for n in range(begin, end)]


def audit(file: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run `winnow audit`, by default of everything since BEGAN. Return its exit code and its findings."""
    done = CliRunner().invoke(main, ["audit", "-c", str(file), "--json", *(arguments or ("--from", str(BEGAN)))])
    *_, last = done.stdout.splitlines() or [""]  # a service in this process logs there, too
    return done.exit_code, json.loads(last) if last else {"stderr": done.stderr}
