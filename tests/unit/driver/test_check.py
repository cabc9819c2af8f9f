"""`winnow check --connect` reports each fact once and changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from app.driver.check import Say, connected
from app.errors import NotUsable, TopicMissing
from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from app.offsets.metadata import OffsetMetadata
from app.offsets.mirrors import Mirror, Mirrors
from app.offsets.none import NoOffsets
from tests.fakes.driver import DriverKafka, FakeCluster, config
from tests.fakes.pauses import PausedFor

BRING_BACK = "restore the broker; the partition resumes on its own"


def noted(said: list[str]) -> Say:
    """Return a callback that records findings as the command prints them."""
    return lambda state, what: said.append(f"{state:<8} {what}")


def test_every_partition_is_shown_once() -> None:
    """The output has each partition's start and lag, or why it is blocked; nothing is logged."""
    kafka = DriverKafka(p0=(50, 100), p1=(0, 7))
    kafka.committed[Partition("raw", 0)] = CommittedOffset(10)
    said: list[str] = []

    with capture_logs() as logs:
        code = connected(config(), kafka.clients, noted(said))

    assert 1 == code
    assert [
        "ok       clean: 2 partitions, records up to 1000000 bytes",
        "ok       dead: 2 partitions, records up to 1000000 bytes",
        "ok       raw-1: starts at 0, 7 offsets behind",
    ] == said[:3]
    (blocked,) = said[3:]
    assert blocked.startswith(
        "blocked  raw-0@10: offsets 10 to 49 (at most 40) were deleted before they were read: set "
    )
    assert [] == logs
    assert [] == kafka.fenced


def test_a_kafka_that_can_be_worked_with_ends_with_0() -> None:
    """It exits with 0 if nothing is blocked."""
    assert 0 == connected(config(), DriverKafka(p0=(0, 1)).clients, lambda *_: None)


def test_a_pause_is_told() -> None:
    """A service started now would read nothing."""
    kafka, said = DriverKafka(p0=(0, 1)), list[str]()
    kafka.pauses = PausedFor(1)

    assert 0 == connected(config(), kafka.clients, noted(said))
    assert (
        "paused   paused since 1970-01-01T00:00:05+00:00, from ops 1; to resume, run winnow resume -c winnow.yaml"
        == said[-1]
    )


def test_transactions_that_the_brokers_do_not_allow_are_told() -> None:
    """No task could open, so the command prints the error. Without transactions there is none."""
    kafka = DriverKafka(p0=(0, 1))
    kafka.short_transactions = NotUsable("transaction.timeout is too long", "lower it")

    said: list[str] = []

    assert 3 == connected(config(), kafka.clients, noted(said))
    assert "refuses  transaction.timeout is too long: lower it" == said[-1]
    assert 0 == connected(config("delivery.guarantee=at-least-once"), kafka.clients, lambda *_: None)
    assert [] == kafka.fenced


def test_what_a_preflight_finds_is_told_with_its_severity() -> None:
    """A warning keeps the exit code 0. A refusal exits with 3, and without the rights nothing else is checked."""
    kafka, said = DriverKafka(p0=(0, 1)), list[str]()
    kafka.clusters = sound = FakeCluster()
    sound.rights["g.pause"] = frozenset()

    assert 0 == connected(config(), kafka.clients, noted(said))
    assert (
        "warns    Winnow lacks Describe and Read on group 'g.pause', so winnow pause does not work: kafka-acls "
        "--bootstrap-server there:9092 --add --allow-principal User:NAME --operation Describe --operation Read --group g.pause"
    ) == said[0]
    assert "ok       the brokers support the API of Kafka 4.1" == said[1]

    sound.rights["raw"] = frozenset({"Describe", "DescribeConfigs"})
    said.clear()
    assert 3 == connected(config(), kafka.clients, noted(said))
    assert (
        "refuses  Winnow lacks Read on topic 'raw': kafka-acls --bootstrap-server there:9092 --add "
        "--allow-principal User:NAME --operation Read --topic raw"
    ) == said[0]
    assert ["refuses", "warns"] == [line.split()[0] for line in said]
    assert [] == kafka.fenced


def test_a_sink_on_the_cluster_of_the_source_is_told() -> None:
    """Only Kafka knows that two addresses are one cluster. A service that would read its own output refuses to start."""
    kafka, said = DriverKafka(p0=(0, 1)), list[str]()
    kafka.clusters, kafka.room = FakeCluster(), {}
    other = "sink.kafka.bootstrap.servers=elsewhere:1"

    assert 0 == connected(config(other), kafka.clients, noted(said))
    assert said[0].startswith("warns    sink.kafka is the source's cluster (id one): ")

    said.clear()
    assert 3 == connected(config(other, "sink.topic=raw"), kafka.clients, noted(said))
    assert said[0].startswith("refuses  sink.kafka is the source's cluster (id one), and the source 'raw' is also")

    said.clear()
    assert 3 == connected(config(other, "offsets.placeholder='{topic}'"), kafka.clients, noted(said))
    assert said[0].startswith("refuses  sink.kafka is the source's cluster (id one), and a placeholder is a source: ")

    said.clear()
    elsewhere = ("delivery.guarantee=at-least-once", "offsets.store.name=redis")
    kafka.transactional = False
    assert 0 == connected(config(other, *elsewhere, "offsets.placeholder='{topic}'"), kafka.clients, noted(said))


@pytest.mark.parametrize(("partitions", "warned"), [(3, False), (2, True)])
def test_a_placeholder_that_may_not_grow_is_told(partitions: int, warned: bool) -> None:
    """The service would block the partitions for whose offsets it has no room. A person may add them."""
    kafka, said = DriverKafka(p0=(0, 1)), list[str]()
    kafka.clusters, kafka.room, name = FakeCluster(), {"raw.offsets": 1}, "raw.winnow-offsets"
    kafka.clusters.partitions = {"raw": 3, name: partitions}
    kafka.clusters.rights[name] = frozenset({"Describe", "Read"})

    assert 0 == connected(config("sink.kafka.bootstrap.servers=elsewhere:1"), kafka.clients, noted(said))
    assert warned == any(f"warns    Winnow lacks Alter on topic {name!r}, so " in line for line in said)


def test_another_store_needs_no_placeholder() -> None:
    """No right on one is asked for, and none is announced."""
    kafka, said = DriverKafka(p0=(0, 1)), list[str]()
    kafka.clusters, kafka.room, kafka.transactional, name = FakeCluster(), {}, False, "raw.winnow-offsets"
    kafka.clusters.partitions, kafka.clusters.rights[name] = {"raw": 3, name: 2}, frozenset()

    elsewhere = ("sink.kafka.bootstrap.servers=elsewhere:1", "delivery.guarantee=at-least-once")
    assert 0 == connected(config(*elsewhere, "offsets.store.name=redis"), kafka.clients, noted(said))
    assert not any(name in line or line.startswith("to do") for line in said)


def test_a_placeholder_that_is_an_output_is_told() -> None:
    """Which sources a pattern finds, and so what their placeholders are called, only Kafka knows."""
    kafka, said = DriverKafka(p0=(0, 1)), list[str]()
    kafka.clusters, kafka.room = FakeCluster(), {}
    found = ("source.topics=[]", "source.topics.pattern=ra.", "dead.letters.topic=raw.winnow-offsets")

    assert 3 == connected(config("sink.kafka.bootstrap.servers=elsewhere:1", *found), kafka.clients, noted(said))
    assert any("placeholder 'raw.winnow-offsets' is also dead.letters.topic" in line for line in said)


def test_a_missing_topic_is_told() -> None:
    """The service would refuse to run."""
    kafka = DriverKafka(p0=(0, 1))
    kafka.troubles = [TopicMissing("topic 'clean' does not exist", "create it")]

    said: list[str] = []

    assert 3 == connected(config(), kafka.clients, noted(said))
    assert ["refuses  topic 'clean' does not exist: create it"] == said


def test_what_a_task_has_found_is_told() -> None:
    """It is stored with the offset, so no service need run. The same holds for a sink partition without a leader."""
    kafka, said = DriverKafka(p0=(0, 10), p1=(0, 10), p2=(0, 10)), list[str]()
    verdict = str(OffsetMetadata("id-1", blocked="9 of 9 records are dead letters: mend the parser"))
    kafka.committed = {Partition("raw", 0): CommittedOffset(4, verdict)}
    kafka.sink_leaderless = {1}

    assert 1 == connected(config(), kafka.clients, noted(said))
    assert [
        "ok       raw-2: starts at 0, 10 offsets behind",
        f"waits    raw-1: its output cannot be delivered: clean-1 has no leader: {BRING_BACK}",
        "blocked  raw-0@4: 9 of 9 records are dead letters: mend the parser",
    ] == said[2:]


def test_every_missing_topic_is_told() -> None:
    """Each comes with the command to create it; sink and dead letters get as many partitions as the largest source."""
    kafka, said = DriverKafka(p0=(0, 1)), list[str]()
    kafka.clusters = FakeCluster()
    kafka.clusters.gone, kafka.clusters.partitions = {"more", "clean", "dead"}, {"raw": 12}

    assert 3 == connected(config("source.topics=[raw, more]"), kafka.clients, noted(said))
    assert [
        f"refuses  topic {name!r} does not exist: kafka-topics --bootstrap-server there:9092 --create --topic {name} "
        f"--partitions {partitions}; or correct the configuration"
        for name, partitions in (("more", 8), ("clean", 12), ("dead", 12))
    ] == said


def test_the_mirrors_are_left_alone() -> None:
    """A check changes nothing, not even in the mirrors."""
    kafka = DriverKafka(p0=(0, 10))
    kafka.committed[Partition("raw", 0)] = CommittedOffset(4)
    told: list[object] = []
    mirror = Mirror("fake", lambda: NoOffsets(StoreContext("group", {})), lambda _, offsets: told.append(offsets))
    mirrors = Mirrors([mirror])

    assert 0 == connected(config(), replace(kafka.clients, mirrors=mirrors), lambda *_: None)

    mirrors.close()
    assert [] == told


def test_what_winnow_would_create_is_told() -> None:
    """On a second cluster, offsets need placeholder topics. A check names those missing and creates none."""
    kafka = DriverKafka(p0=(0, 1), p1=(0, 1))
    kafka.room = {}
    said: list[str] = []

    assert 0 == connected(config(), kafka.clients, noted(said))

    assert "to do    raw.offsets: Winnow will create 2 partitions on the sink's cluster, for offsets only" == said[-1]
    assert {} == kafka.room


def test_a_compacted_dead_letter_topic_is_refused() -> None:
    """It would lose dead letters. A compacted sink is allowed, and its restriction is shown."""
    kafka = DriverKafka(p0=(0, 1))
    kafka.compacted = {"clean"}
    said: list[str] = []

    assert 0 == connected(config(), kafka.clients, noted(said))
    assert "ok       clean: 2 partitions, records up to 1000000 bytes, only with a key" == said[0]
    kafka.compacted = {"dead"}
    assert 3 == connected(config(), kafka.clients, noted(said))
    assert said[-1].startswith("refuses  the dead-letter topic 'dead' is compacted")
    assert said[-1].endswith(" --alter --topic dead --add-config cleanup.policy=delete")
