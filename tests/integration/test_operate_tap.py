"""`winnow tap` on a real Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, cleansed, committed, line, produce, read
from tests.integration.service import settings
from tests.support.configuration import file_of
from tests.support.waiting import PATIENCE, until


def test_live_pairs(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """It prints new records with their outcome, optionally of one reason only, and writes and commits nothing."""
    source, sink, dead = topics("raw", 2), topics("clean"), topics("dead")
    file = file_of(settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead), tmp_path)
    produce(broker.bootstrap, source, [Written(line(0), None, 0)])

    with Tap(file, "--limit", "4") as every, Tap(file, "--limit", "2", "--reason", "no_marker") as rejected:
        for each in (every, rejected):
            each.await_start()
        for number in (1, 2):
            produce(broker.bootstrap, source, [Written(line(number), None, 0), Written(b"rubbish", None, 1)])
        found = sorted(every.lines(), key=lambda each: (each["partition"], each["offset"]))
        others = rejected.lines()

    assert [0, 0] == [every.process.returncode, rejected.process.returncode]
    assert [(0, 1), (0, 2), (1, 0), (1, 1)] == [(each["partition"], each["offset"]) for each in found]
    assert [cleansed(1).decode(), cleansed(2).decode()] == [each["output"] for each in found[:2]]
    assert ["no_marker"] * 2 == [each["reason"] for each in found[2:]]
    assert [(1, "no_marker")] * 2 == [(each["partition"], each["reason"]) for each in others]
    assert {} == committed(broker.bootstrap, sink, source)
    assert [] == read(broker.bootstrap, sink) + read(broker.bootstrap, dead)


class Tap:
    """A tap in its own process, which ends with the block."""

    def __init__(self, file: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "app.cli", "tap", "-c", str(file), "--json", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._said = ""
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self._listener.join(PATIENCE)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _listen(self) -> None:
        for said in self.process.stderr or ():
            self._said += said

    def await_start(self) -> None:
        """Wait until it knows the ends of the topics."""
        until(lambda: "showing new records" in self._said or self.process.poll() is not None, "the tap")
        assert "showing new records" in self._said

    def lines(self) -> list[dict[str, Any]]:
        """Wait for its end and return its output."""
        assert self.process.stdout is not None
        return [json.loads(each) for each in self.process.stdout]
