"""The format of the log: JSON on a pipe, plain text on a terminal."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "from app import log; import structlog; log.configure('info'); l = structlog.get_logger(); l.debug('no'); l.info('round', records=3)"


def test_json_lines_on_a_pipe() -> None:
    """A pipe gets one JSON object a line, on stderr, with level and UTC time; debug is not enabled."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    (entry,) = map(json.loads, done.stderr.splitlines())
    assert ("round", "info", 3) == (entry["event"], entry["level"], entry["records"])
    assert entry["timestamp"].endswith("Z")
    assert "" == done.stdout


def test_each_line_has_the_context_of_its_process() -> None:
    """Which group, round and task it is about, also from another thread; what a line says itself wins."""
    program = (
        "import threading, structlog; from app import log; log.configure('info', group='g', round=3, task=1);"
        "l = structlog.get_logger(); thread = threading.Thread(target=lambda: l.info('here', task=2)); thread.start()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    entry = json.loads(done.stderr)
    assert {"group": "g", "round": 3, "task": 2, "event": "here", "level": "info"} == {
        name: value for name, value in entry.items() if name != "timestamp"
    }


def test_plain_text_on_a_terminal() -> None:
    """A terminal gets readable lines."""
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", PROGRAM], stderr=theirs, check=True)
    os.close(theirs)

    text = os.read(ours, 10_000).decode()

    assert "round" in text
    assert "records" in text
    assert not text.startswith("{")


def test_each_line_is_written_at_once() -> None:
    """Workers share stderr: a line in two writes would tear those of others, as it did with PYTHONUNBUFFERED."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # each write is a datagram of its own
    with ours, theirs:
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        subprocess.run([sys.executable, "-c", PROGRAM], stderr=theirs.fileno(), env=environment, check=True)

        written = ours.recv(10_000).decode()

    assert written.endswith("\n")
    assert "round" == json.loads(written)["event"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_log_that_takes_no_line_ends_nothing(unbuffered: str) -> None:
    """Its disk may be full; the offsets still count. Nor does what stays in the buffer change the exit code."""
    program = (
        "from app import log; log.configure('debug'); import structlog; l = structlog.get_logger();"
        "[write('x') for write in (l.debug, l.info, l.warning, l.error, l.critical)]; print('goes on', flush=True)"
    )
    with Path("/dev/full").open("wb") as full:
        environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, text=True, check=True, env=environment
        )

    assert "goes on\n" == done.stdout


def test_a_line_goes_where_stderr_leads_now() -> None:
    """A progress bar puts a file in its place that writes above the bar; the line would tear the bar otherwise."""
    program = (
        "import io, json, sys, structlog; from app import log; log.configure('info'); l = structlog.get_logger();"
        "sys.stderr = above = io.StringIO(); l.info('round'); print(json.loads(above.getvalue())['event'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ("round\n", "") == (done.stdout, done.stderr)
