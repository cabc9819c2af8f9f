"""
Measures how long the service takes to stop after SIGTERM: with lines flowing, and with its only broker gone.

Usage: python -m tests.bench.stops [--times N]

The broker goes away while 64 partitions are open.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.embedded.broker import Broker
from tests.bench.report import markdown, say
from tests.independent import Feeder, Written, line, produce, read
from tests.integration.service import WinnowOnSpark, settings
from tests.support.waiting import until

TITLES = ("when", "median s", "longest s")
FEW, MANY = 4, 64


@contextmanager
def started(broker: Broker, name: str, partitions: int) -> Iterator[WinnowOnSpark]:
    """Start a service on new topics. Wait until each partition has delivered a line."""
    raw, clean, dead = (broker.create_topic(f"{name}.{role}", partitions) for role in ("raw", "clean", "dead"))
    config = settings(broker.bootstrap, group=name, sources=[raw], sink=clean, dead=dead)
    produce(broker.bootstrap, raw, [Written(line(n), None, n) for n in range(partitions)])
    with tempfile.TemporaryDirectory() as folder, WinnowOnSpark(config, Path(folder)) as service:
        until(lambda: len(read(broker.bootstrap, clean)) >= partitions, "a flow")
        yield service


def timed(service: WinnowOnSpark) -> float:
    """Stop a service and return how many seconds that took."""
    began = time.monotonic()
    if code := service.stop():
        sys.exit(f"it ended with {code}")
    return time.monotonic() - began


def while_lines_flow(broker: Broker, name: str) -> float:
    with started(broker, name, FEW) as service, Feeder(broker.bootstrap, f"{name}.raw", FEW, 3_000):
        until(lambda: len(read(broker.bootstrap, f"{name}.clean")) > 10_000, "a flow")
        return timed(service)


def while_kafka_is_gone(broker: Broker, name: str) -> float:
    with started(broker, name, MANY) as service:
        broker.kill()
        try:
            return timed(service)
        finally:
            broker.start()


CASES: dict[str, Callable[[Broker, str], float]] = {
    f"{FEW} partitions, 3,000 lines/s": while_lines_flow,
    f"{MANY} partitions, the only broker killed before": while_kafka_is_gone,
}


def main() -> int:
    """Print a table with one row per case."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.stops", description=__doc__.splitlines()[1])
    options.add_argument("--times", type=int, default=3, help="stops of each kind; default: %(default)s")
    times = options.parse_args().times
    rows = []
    with Broker() as broker:
        for number, (case, stop) in enumerate(CASES.items()):
            took = [stop(broker, f"stop-{number}-{turn}") for turn in range(times)]
            say(f"{case}: {', '.join(f'{each:.1f} s' for each in took)}")
            rows.append([case, f"{statistics.median(took):.1f}", f"{max(took):.1f}"])
    print(markdown(TITLES, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
