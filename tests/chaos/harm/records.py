"""Writes records that the sink or the dead letters refuse, or makes the topics refuse what they took before."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.chaos.cluster import System, kill, until
from tests.chaos.harm.base import PATIENCE, PROGRESS_SECONDS, committed, expect_progress, find_processes
from tests.chaos.harm.processes import end_drivers
from tests.chaos.lines import LARGE, LONG, OF_NEXT_YEAR, WITHOUT_KEY, Odd
from tests.chaos.load import Load
from tests.chaos.views import expect_agreement

ODD_SECONDS = 8.0
LOW_LIMIT = "20000"
BLOCKED = "partition_blocked"
TRIPPED = "tripped=1"
"""What the metadata of a partition's offset says once its breaker has tripped."""


@contextmanager
def timestamp_refused(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Write lines of next year, which the sink refuses (`message.timestamp.after.max.ms` is an hour)."""
    yield "the sink"
    _write(OF_NEXT_YEAR, system, load)


@contextmanager
def size_refused(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Write rejects of 5 MB, which fit the dead-letter topic only compressed."""
    yield "the dead letters"
    _write(LARGE, system, load)


@contextmanager
def missing_key_refused(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Make the sink a compacted topic, and write lines without a key."""
    with _configured(system, "cleanup.policy", "compact"):
        yield "the sink"
        _write(WITHOUT_KEY, system, load)


@contextmanager
def limit_lowered(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Lower the largest batch that the sink takes, and write lines that are longer."""
    with _configured(system, "max.message.bytes", LOW_LIMIT):
        yield "the sink"
        _write(LONG, system, load)


@contextmanager
def headers_forged(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """
    Write rejects that bear the service's own headers, and kill the workers.

    A stranger's transaction holds the dead letters back, so that whoever opens a partition next looks at what lies there.
    """
    with _open_in(system, system.roles["dead"]):
        usual, load.bad, load.group = load.bad, 1.0, system.name
        yield "the dead letters"
        time.sleep(ODD_SECONDS)
        load.bad, load.group = usual, ""
        for victim in find_processes(lambda: system.workers):
            kill(victim)
        expect_progress(system, range(system.partitions), "behind rejects that bear the service's headers")


@contextmanager
def breaker_trips(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Write only rejects, with a breaker: each partition waits for a person, who starts the service without one."""
    with _breaker(system):
        load.spoiled = frozenset(range(system.partitions))
        yield "all partitions"
        _expect_blocked(system, load.spoiled)
        expect_agreement(system, system.driver, "too many dead letters")
        load.spoiled = frozenset()


@contextmanager
def breaker_trips_and_workers_die(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Write only rejects to one partition; kill the workers after its breaker has tripped, before the driver knows."""
    victim = rng.randrange(system.partitions)
    with _breaker(system):
        expect_progress(system, range(system.partitions), "with a breaker")
        load.spoiled = frozenset({victim})
        yield f"partition {victim}"
        until(lambda: TRIPPED in (committed(system)[victim].metadata or ""), PROGRESS_SECONDS)
        load.pause = True  # what waits must be too little to trip the breaker of a task that starts anew
        stopped_at = committed(system)[victim].offset
        for worker in find_processes(lambda: system.workers):
            kill(worker)
        expect_progress(
            system, set(range(system.partitions)) - load.spoiled, "beside a partition whose breaker tripped"
        )
        _expect_blocked(system, load.spoiled)
        if (offset := committed(system)[victim].offset) != stopped_at:
            what = f"partition {victim} went on from {stopped_at} to {offset} after its breaker had tripped"
            system.recorder.record("seen", anomaly="went on", what=what)
        load.spoiled, load.pause = frozenset(), False


@contextmanager
def _breaker(system: System) -> Iterator[None]:
    """Run the service with a breaker for the length of the block, and then without one, as an operator would."""
    end_drivers(system)
    breaker = {"ratio": 0.5, "minimum": 100, "window": "60s"}
    system.start_driver(config={"dead.letters": {"topic": system.roles["dead"], "breaker": breaker}})
    yield
    end_drivers(system)
    system.start_driver()
    expect_progress(system, range(system.partitions), "after the breaker was taken out")


def _expect_blocked(system: System, spoiled: frozenset[int]) -> None:
    """Wait until the breakers of just these partitions have blocked them; record it if that does not happen."""
    if not until(lambda: _blocked(system) == spoiled, PROGRESS_SECONDS):
        what = f"breakers blocked partitions {sorted(_blocked(system))}, and should have blocked {sorted(spoiled)}"
        system.recorder.record("seen", anomaly="went on", what=what)


def _blocked(system: System) -> set[int]:
    return {each["partition"] for each in system.driver.logged(BLOCKED)}


@contextmanager
def _open_in(system: System, topic: str) -> Iterator[None]:
    """Keep a transaction open in each partition of a topic, and abort it."""
    own = {"transactional.id": f"stranger/{topic}", "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": system.broker.bootstrap, "log_level": 0} | own)
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    for number in range(system.partitions):
        producer.produce(topic, b"stranger", partition=number)
    producer.flush()
    try:
        yield
    finally:
        producer.abort_transaction(PATIENCE)


def _write(odd: Odd, system: System, load: Load) -> None:
    """Write odd lines for some seconds; then each partition must get past them."""
    load.odd = odd
    time.sleep(ODD_SECONDS)
    load.odd = None
    expect_progress(system, range(system.partitions), "after a record that the broker refuses")


@contextmanager
def _configured(system: System, name: str, value: str) -> Iterator[None]:
    """Change the sink's configuration for the length of the block."""
    _alter(system, ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    yield
    _alter(system, ConfigEntry(name, "", incremental_operation=AlterConfigOpType.DELETE))


def _alter(system: System, entry: ConfigEntry) -> None:
    resource = ConfigResource(ResourceType.TOPIC, system.roles["sink"], incremental_configs=[entry])
    admin = system.broker.admin()
    admin.incremental_alter_configs([resource])[resource].result(30)
