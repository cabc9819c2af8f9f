"""Writes into the sink as a stranger would; the audit at the end of the run must find exactly these lines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.cluster import System
from tests.chaos.lines import key, numbered
from tests.chaos.load import Load
from tests.independent import Written, cleansed, produce, read

STRANGERS = 1_000_000
"""The first of the streams that the load never writes."""


@contextmanager
def foreign_line(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Write a line that no record of the source explains."""
    partition, stream = rng.randrange(system.size.partitions), STRANGERS + rng.getrandbits(20)
    # A stream of its own: two lines of one stream in two partitions have no order.
    _plant(system, Written(cleansed(0, stream), key(stream, 0), partition), stream, 0)
    yield f"sink-{partition}"


@contextmanager
def written_again(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Write a line of the service once more, with its key and timestamp."""
    line = rng.choice(read(system.broker.bootstrap, system.roles["sink"]))
    assert line.key is not None
    name = line.key.partition(b"|")[0]  # without the label of the transaction
    copy = Written(line.value, name, line.partition, line.timestamp)
    _plant(system, copy, *numbered(name, line.value or b""))
    yield f"sink-{line.partition}@{line.offset}"


def _plant(system: System, line: Written, stream: int, number: int) -> None:
    produce(system.broker.bootstrap, system.roles["sink"], [line])
    system.recorder.record("planted", stream=stream, number=number)
