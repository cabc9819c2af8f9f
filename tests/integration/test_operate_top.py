"""`winnow top` on a real Kafka, next to a working service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, line, produce, read
from tests.integration.in_process import Running
from tests.integration.service import settings
from tests.support.configuration import file_of
from tests.support.waiting import PATIENCE, until

LOOKS = int(PATIENCE / 2)
"""There is one every two seconds."""


def test_rates_of_a_service_that_works(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Each look prints one line. Its rates count all records processed since the last look, accepted or not."""
    source, sink, dead = topics("raw", 2), topics("clean"), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    file = file_of(config, tmp_path)
    command = [sys.executable, "-m", "app.cli", "top", "-c", str(file), "--json"]

    with Running(config), subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        produce(broker.bootstrap, source, [Written(line(n), None, n % 2) for n in range(10)])
        until(lambda: 10 == len(read(broker.bootstrap, sink)), "lines")
        first = json.loads(top.stdout.readline())
        produce(broker.bootstrap, source, [Written(line(n) if n % 2 else b"", None, 0) for n in range(1_000)])
        looks = (json.loads(top.stdout.readline()) for _ in range(LOOKS))
        busy = next(each for each in looks if each["dead_letters_per_second"])
        top.terminate()

    assert first["partitions"][0]["records_per_second"] is None
    assert busy["records_per_second"] >= busy["dead_letters_per_second"] > 0
    assert {0, 1} == {each["partition"] for each in busy["partitions"]}
