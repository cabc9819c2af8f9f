"""Group requests of the driver whose response comes too late."""

from __future__ import annotations

import subprocess
import sys

import psutil

from app.embedded.broker import Broker
from tests.chaos.cluster import stopped
from tests.support.waiting import PATIENCE

ASKS_TWICE = """
import faulthandler, sys
faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
from app.errors import Unreachable
from app.kafka.admin import AdminConnection
from app.kafka.cluster import KafkaGroup
from tests.support.waiting import without

connection = AdminConnection({"bootstrap.servers": sys.argv[1]})
without(Unreachable, KafkaGroup([connection], "early").refuse_foreign_members, "the topic of offsets")
client = connection.client  # lives on, as it does while another thread uses it
for _ in range(2):
    print("next", flush=True)
    sys.stdin.readline()
    try:
        KafkaGroup([connection], "late").refuse_foreign_members()
    except Unreachable as error:
        print(error, flush=True)
"""


def test_a_coordinator_that_answers_late_does_not_end_the_process(mortal: Broker) -> None:
    """A late coordinator does not end the process. librdkafka aborts if its own admin timeout expires first."""
    (server,) = psutil.Process(*mortal.pids).children()
    asks = subprocess.Popen(
        [sys.executable, "-c", ASKS_TWICE, mortal.bootstrap, str(PATIENCE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with asks:
        assert asks.stdin is not None
        assert asks.stdout is not None
        heard = [asks.stdout.readline()]
        with stopped(server):
            print(file=asks.stdin, flush=True)
            heard += [asks.stdout.readline(), asks.stdout.readline()]
        mortal.admin().list_topics(timeout=PATIENCE)  # earlier requests are answered by now
        print(file=asks.stdin, flush=True)
        code = asks.wait(PATIENCE)

    assert ["next\n", "next\n"] == [heard[0], heard[2]]
    assert "is not responding while describing group 'late'" in heard[1]
    assert 0 == code
