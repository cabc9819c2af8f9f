"""A build of the image that is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.containers.contract import ROOT
from tests.containers.debian import why_not_debian
from tests.support.waiting import PATIENCE, until


def programs(folder: Path) -> list[list[str]]:
    """Return the commands whose arguments contain the folder."""
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [command for command in commands if any(str(folder) in word for word in command)]


def test_nothing_is_left_of_an_interrupted_build(tmp_path: Path) -> None:
    """Ctrl-C during a build ends its programs and removes its files and mounts."""
    if reason := why_not_debian():
        pytest.skip(reason)
    folder = tmp_path / "temporary"
    folder.mkdir()
    # A process started in the background ignores SIGINT, and the build would inherit that.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "tests.containers"]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "TMPDIR": str(folder)}, stderr=subprocess.PIPE
    ) as build:
        until(lambda: any(folder.glob("*/store/overlay/*/diff/etc")))
        build.send_signal(signal.SIGINT)
        build.communicate(timeout=PATIENCE)

    assert 0 != build.returncode
    assert [] == list(folder.iterdir())
    until(lambda: not programs(folder))
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
