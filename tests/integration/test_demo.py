"""`winnow demo --keep` prints the address of the status page, and keeps it up and new lines flowing until a signal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.status_page import ask, is_ready
from tests.support.spark import quick_spark
from tests.support.waiting import PATIENCE, alive_after, end, until

pytestmark = pytest.mark.integration


def test_the_page_stays_up(tmp_path: Path) -> None:
    """The page stays at the address printed during cleansing. SIGTERM ends everything with 0, as Ctrl-C does."""
    printed = tmp_path / "printed"
    with printed.open("wb") as output:
        demo = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "demo", "--records", "2000", "--keep", "--rate", "100"],
            stdout=output,
            env=os.environ | quick_spark(),
            start_new_session=True,
        )
    try:
        until(lambda: " check --connect " in printed.read_text() or demo.poll() is not None, "its last line is printed")
        assert demo.poll() is None
        first, *others = re.findall(r"http://[\d.:]+/", printed.read_text())
        assert [first] == others
        until(lambda: is_ready(first), "the service works again")
        status = json.loads(ask(f"{first}api/status")[1])
        assert 8 == len(status["partitions"])
        until(lambda: json.loads(ask(f"{first}api/status")[1])["totals"]["records"] > 2_000, "new lines")
        below = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGTERM)
        assert 0 == demo.wait(PATIENCE)
        assert [] == alive_after(below)
    finally:
        if demo.poll() is None:
            end([*psutil.Process(demo.pid).children(recursive=True), psutil.Process(demo.pid)])
            demo.wait(PATIENCE)
