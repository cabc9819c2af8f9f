"""What an integration test leaves running."""

from __future__ import annotations

import subprocess
import threading

from confluent_kafka import Producer

from tests.support.leftovers import AlreadyRunning
from tests.support.waiting import until


def test_what_is_left_is_found() -> None:
    """A thread, a client of Kafka and a process, as long as they run. An earlier client that ends hides none."""
    nowhere: dict[str, str | int] = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}
    earlier = Producer(nowhere)
    before, ended = AlreadyRunning(), threading.Event()
    producer = Producer(nowhere)
    del earlier
    thread = threading.Thread(target=ended.wait, name="winnow-waits")
    thread.start()
    process = subprocess.Popen(["sleep", "600"])
    try:
        # A client names its thread a moment after it was made.
        until(lambda: before.left_in_process() == ["winnow-waits", "a client of Kafka"])
        assert [process.pid] == [each.pid for each in before.processes_of_test()]
    finally:
        process.kill()
        process.wait()
        ended.set()
    del producer
    until(lambda: not before.left_in_process())
    assert [] == before.processes_of_test()
