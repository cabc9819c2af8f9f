"""How Winnow speaks: JSON where a machine listens, words where a person does."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

PROGRAM = "from app import log; import structlog; log.configure('info'); l = structlog.get_logger(); l.debug('no'); l.info('round', records=3)"


def test_json_lines_where_nobody_looks() -> None:
    """A pipe gets one JSON object a line, on stderr, with level and UTC time; debug is not asked for."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    (entry,) = map(json.loads, done.stderr.splitlines())
    assert ("round", "info", 3) == (entry["event"], entry["level"], entry["records"])
    assert entry["timestamp"].endswith("Z")
    assert "" == done.stdout


def test_words_on_a_terminal() -> None:
    """A terminal gets a line that a person can read."""
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", PROGRAM], stderr=theirs, check=True)
    os.close(theirs)

    told = os.read(ours, 10_000).decode()

    assert "round" in told
    assert "records" in told
    assert not told.startswith("{")
