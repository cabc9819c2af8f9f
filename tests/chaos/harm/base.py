"""What every theme of harm needs: victims, patience, and the question whether a partition goes on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.broker import BrokerFailed
from tests.chaos.cluster import TRANSACTION_SECONDS, System, until
from tests.chaos.grouped import NOBODY
from tests.chaos.load import Load

Harm = Callable[[System, Load, random.Random], AbstractContextManager[str]]
BEYOND_THE_TIMEOUT = TRANSACTION_SECONDS + 2.0
PATIENCE = 60.0
PROGRESS_SECONDS = 300.0
"""On a busy machine a driver needs minutes until its tasks commit."""
POLL_SECONDS = 0.25
"""Listing processes costs tens of milliseconds."""
ANSWER_SECONDS = 3.0
T = TypeVar("T")


class Missed(Exception):
    """Harm has met nobody: raised at its end, when everything is repaired."""


@contextmanager
def inflicted(
    name: str, harm: Harm, system: System, load: Load, rng: random.Random, *, told: str = ""
) -> Iterator[None]:
    """Do harm, repair it before the block, and record both: the repair after the block. Record harm that met nobody."""
    recorder, state = system.recorder, system.state()
    began, target = recorder.now, NOBODY
    try:
        with harm(system, load, rng) as target:
            recorder.record("fault", name=name, target=target, state=state, began=began, told=told)
    except Missed as missed:
        recorder.record("missed", name=name, why=str(missed))
    yield
    recorder.record("healed", name=name, target=target)


def choose(rng: random.Random, find: Callable[[], Sequence[psutil.Process]]) -> psutil.Process | None:
    """Choose one of the processes; wait until there are some. None if none appear."""
    found = find_processes(find)
    return rng.choice(found) if found else None


def find_processes(find: Callable[[], Sequence[psutil.Process]]) -> Sequence[psutil.Process]:
    """Wait until there are such processes, and return them; empty if none appear in time."""
    deadline = time.monotonic() + PATIENCE
    while not (found := find()) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return found


def expect_progress(system: System, partitions: Iterable[int], why: str, seconds: float = PROGRESS_SECONDS) -> None:
    """Wait until the service has committed what these source partitions hold now; record those that stand still."""
    wanted = source_ends(system, partitions)

    def behind() -> list[int]:
        done = committed_offsets(system)
        return [number for number, end in wanted.items() if done.get(number, 0) < end]

    if not until(lambda: not behind(), seconds):
        system.recorder.record("seen", anomaly="stuck", what=f"{why}: partitions {behind()} for {seconds:.0f} s")


def bring_back(system: System, node: int) -> None:
    """Start a broker that was killed, and wait until it has caught up; a busy machine may need several attempts."""
    for attempts_left in (2, 1, 0):
        try:
            system.broker.start(node)
        except BrokerFailed:
            if not attempts_left:
                raise
        else:
            break
    until(lambda: system.broker.in_sync, PATIENCE)


def source_ends(system: System, partitions: Iterable[int]) -> dict[int, int]:
    """Return the high watermarks of some source partitions, in a cluster that may have lost others."""

    def ask() -> dict[int, int]:
        admin = system.broker.admin()
        # For a topic that it knows, librdkafka asks its cache for leaders, which lacks partitions added since.
        admin.list_topics(system.source, timeout=ANSWER_SECONDS)
        asked = {TopicPartition(system.source, number): OffsetSpec.latest() for number in partitions}  # type: ignore[no-untyped-call]
        return {at.partition: each.result(ANSWER_SECONDS).offset for at, each in admin.list_offsets(asked).items()}

    return _answered(ask)


def committed_offsets(system: System) -> dict[int, int]:
    """Return the group's committed offsets of the source partitions."""
    return {number: at.offset for number, at in committed(system).items()}


def committed(system: System) -> dict[int, TopicPartition]:
    """Return what the group has committed for each source partition, with its metadata."""

    def ask() -> dict[int, TopicPartition]:
        own: dict[str, Any] = {"bootstrap.servers": system.broker.bootstrap, "group.id": system.name, "log_level": 0}
        asked = [TopicPartition(system.source, number) for number in range(system.partitions)]
        answers = Consumer(own).committed(asked, ANSWER_SECONDS)
        return {at.partition: at for at in answers if at.offset >= 0}

    return _answered(ask)


def replicas(system: System, partition: int) -> tuple[int, list[int]]:
    """Return the leader of a source partition, -1 if there is none, and all its nodes."""

    def ask() -> tuple[int, list[int]]:
        topics = system.broker.admin().list_topics(system.source, timeout=ANSWER_SECONDS).topics
        known = topics[system.source].partitions[partition]
        return known.leader, known.replicas

    return _answered(ask)


def _answered(ask: Callable[[], T]) -> T:
    """Ask again until there is an answer: the broker that is asked first may be the one that is away."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except (KafkaException, TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
