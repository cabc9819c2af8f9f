"""
Measures init and commit with 1 to 256 producers in one process: `python -m tests.chaos.measure`.

The calls go to an embedded broker, in parallel threads, as in a task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from app.embedded.broker import Broker
from app.executor.calls import SIDE_BY_SIDE
from app.kafka.clients import TaskClients
from app.model import Destination, Guarantee, Partition, Plugin, TaskConfig
from app.records import Lines
from tests.independent import cleansed

PRODUCERS = (1, 8, 64, 256)
WARM_UP = 16
"""Producers of a first run that is not reported: Kafka must create its internal topics and compile its code."""
ROUNDS = 20


def main() -> None:
    """Measure and print a table."""
    print("producers  init p50  init p99  commit p50  commit p99  (ms)")
    with Broker() as broker:
        measure(broker, "warm-up", WARM_UP)
        for producers in PRODUCERS:
            opened, committed = measure(broker, f"measure-{producers}", producers)
            row = [np.percentile(each, point) * 1000 for each in (opened, committed) for point in (50, 99)]
            print(f"{producers:9}" + "".join(f"{each:10.1f}" for each in row), flush=True)


def measure(broker: Broker, name: str, producers: int) -> tuple[Sequence[float], Sequence[float]]:
    """Open the writers and let each commit a few times; return the seconds of each opening and of each commit."""
    for role in ("raw", "clean", "dead"):
        broker.create_topic(f"{name}.{role}", producers)
    sink, dead = Destination(f"{name}.clean", producers, 1_048_588), Destination(f"{name}.dead", producers, 1_048_588)
    kafka = {"bootstrap.servers": broker.bootstrap}
    task_config = TaskConfig(name, Guarantee.EXACTLY_ONCE, sink, dead, "raw", Plugin("idc-access-log"), kafka)
    clients = TaskClients(task_config)
    offsets = clients.offsets()
    partitions = [Partition(f"{name}.raw", number) for number in range(producers)]
    writers = [clients.writer(partition, offsets) for partition in partitions]
    committed: list[float] = []
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        opened = list(threads.map(lambda writer: timed(writer.open), writers))
        for number in range(ROUNDS):
            for writer in writers:
                writer.send(_lines(number))
            offset = number + 1
            committed += threads.map(lambda writer: timed(lambda: writer.commit(offset, "")), writers)  # noqa: B023
    return opened, committed


def _lines(number: int) -> Lines:
    values = pa.array([cleansed(number)] * 10, pa.binary())
    return Lines(values, np.arange(10, dtype=np.int32), values, np.zeros(10, np.int64))


def timed(call: Callable[[], None]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
