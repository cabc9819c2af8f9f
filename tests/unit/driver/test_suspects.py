"""Partitions that may hold a record that kills or hangs the workers."""

from __future__ import annotations

from collections.abc import Sequence

from app.driver.discover import Discovery
from app.driver.suspects import SUSPECT_SECONDS, Suspects
from app.errors import SparkFailed, Unreachable
from app.model import Assignment, CommittedOffset, Partition, Receipt
from tests.fakes.driver import DriverKafka, FakeRound, FakeRounds, Result, config, service, works
from tests.fakes.simulation import ImpatientStop

A, B, C = Partition("raw", 0), Partition("raw", 1), Partition("raw", 2)


def test_who_stood_still_although_records_wait() -> None:
    """A partition that made progress, or has nothing to read, is not one."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10), p2=(0, 10))
    kafka.committed = {A: CommittedOffset(4), B: CommittedOffset(4), C: CommittedOffset(10)}
    discovery, suspects = Discovery(config(), kafka.clients), Suspects(lambda: 0.0)
    suspects.round_died(discovery.discover().offsets)
    kafka.committed[B] = CommittedOffset(5)

    assert {A} == suspects.among(discovery.discover())


def test_a_suspicion_ends() -> None:
    """More such records may follow one, but not forever; what happened before another round is forgotten."""
    kafka, now = DriverKafka(p0=(0, 10)), [0.0]
    discovery, suspects = Discovery(config(), kafka.clients), Suspects(lambda: now[0])
    suspects.round_died(discovery.discover().offsets)

    assert {A} == suspects.among(discovery.discover())
    now[0] = SUSPECT_SECONDS - 1
    assert {A} == suspects.among(discovery.discover())
    now[0] = SUSPECT_SECONDS
    assert not suspects.among(discovery.discover())


def test_the_next_round_isolates_the_parser_of_the_suspects() -> None:
    """Only for their tasks, because isolation has a small cost."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    act = works(kafka)

    def die_once(assignments: Sequence[Assignment]) -> Result:
        if len(rounds.rounds) == 1:
            kafka.committed[B] = CommittedOffset(5)
            return SparkFailed("a worker died too often")
        return act(assignments)

    rounds = FakeRounds(die_once)
    service(kafka, rounds, stop=ImpatientStop()).run(until_end=True)

    assert [{A: False, B: False}, {A: True, B: False}] == [
        {each.partition: task.isolate for task in round_ for each in task.ranges} for round_ in rounds.rounds
    ]


def test_an_outage_acquits_all() -> None:
    """At least once, the driver does not notice it during the round: the tasks have waited for Kafka, as it does now."""
    kafka = DriverKafka(p0=(0, 10))
    act = works(kafka)

    def hang_once(assignments: Sequence[Assignment]) -> Result:
        if len(rounds.rounds) > 1:
            return act(assignments)
        kafka.troubles = [Unreachable("connection refused")]
        return SparkFailed("the tasks were killed")

    rounds = FakeRounds(hang_once)
    service(kafka, rounds, config("delivery.guarantee=at-least-once"), ImpatientStop()).run(until_end=True)

    assert [False, False] == [task.isolate for round_ in rounds.rounds for task in round_]


def test_a_retry_without_time_left_acquits_nobody() -> None:
    """At least once, the watchdog ends the first attempt after the deadline, so the second reports that it read nothing."""
    kafka = DriverKafka(p0=(0, 10))
    kafka.committed[A] = CommittedOffset(4)
    act = works(kafka)

    class Lost(FakeRound):
        lost_tasks = 1

    def hang_once(assignments: Sequence[Assignment]) -> Result:
        return [Receipt(A, 4, 4)] if len(rounds.rounds) == 1 else act(assignments)

    rounds = FakeRounds(hang_once)
    rounds.kind = Lost
    service(kafka, rounds, config("delivery.guarantee=at-least-once"), ImpatientStop()).run(until_end=True)

    assert [False, True] == [task.isolate for round_ in rounds.rounds for task in round_]
