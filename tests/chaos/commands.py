"""The product's commands, as a person runs them beside the service, on the configuration of the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE, AUDIT_SECONDS = 600.0, 3_600.0
"""How long a command may take: on a slow machine, an audit of seven million lines takes more than ten minutes."""
WINNOW, AUDIT = "app.cli", "tests.chaos.audit"
"""What to run: the command line, or its audit for output that the harness has labelled."""


class Answer(NamedTuple):
    """What a command said: its exit code, its JSON (empty without any), and its stderr."""

    code: int
    value: dict[str, Any]
    words: str


def run(code: Path, file: str | Path, *arguments: str, module: str = WINNOW) -> Answer:
    """
    Run a command, and wait for its end.

    Args:
        code: the folder that `app`, `parsers` and `tests` are imported from.
        file: the configuration.
        arguments: the command and its options.
        module: what to run.
    """
    environment = {**os.environ, "PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", module, *arguments, "-c", str(file)]
    seconds = AUDIT_SECONDS if module == AUDIT else PATIENCE
    done = subprocess.run(
        command, env=environment, check=False, capture_output=True, text=True, timeout=seconds, start_new_session=True
    )
    value = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return Answer(done.returncode, value, done.stderr.strip())
