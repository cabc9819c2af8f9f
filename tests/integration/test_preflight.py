"""The preflight on a real broker with ACLs: it names exactly the missing rights, and changes nothing."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from app.config import Config, load, undecided
from app.driver.diagnostics import Severity
from app.driver.preflight import Preflight
from app.driver.stop import Stop
from app.errors import NotAllowed, NotUsable, Unreachable
from app.runtime import REAL
from app.start import clients, service
from tests.conftest import STEADY, wait_for_coordinators
from tests.integration import checks
from tests.integration.guarded import GuardedBroker, login
from tests.integration.in_process import ThreadRounds
from tests.integration.secured import allow, create
from tests.support.waiting import PATIENCE, until, without

KINDS = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--cluster": ResourceType.BROKER,
}
PROPERTIES = {"transaction.max.timeout.ms": "900000", **STEADY}


@pytest.fixture(scope="module")
def strict() -> Iterator[GuardedBroker]:
    """Return a broker that allows only what an ACL allows."""
    with GuardedBroker({"allow.everyone.if.no.acl.found": "false", **PROPERTIES}) as broker:
        wait_for_coordinators(broker)
        yield broker


def topics(broker: GuardedBroker, name: str) -> dict[str, str]:
    """Create the topics of a test; return them by role."""
    return {role: broker.create_topic(f"{name}-{role}") for role in ("raw", "clean", "dead")}


def configuration(broker: GuardedBroker, name: str, *more: str) -> Config:
    """Return the configuration of a user restricted by ACLs."""
    kafka = [f"kafka.{key}={value}" for key, value in login(broker, "right")["kafka"].items()]
    names = [f"source.topics={name}-raw", f"sink.topic={name}-clean", f"dead.letters.topic={name}-dead"]
    return load(None, [f"group.id={name}", *names, *kafka, "http.enabled=false", *more], {})


def checked(config: Config) -> tuple[int, list[str], list[str]]:
    """Return the exit code of `check --connect`, its errors and its warnings."""
    code, said = checks.checked(config)
    refused, warnings = ([what for state, what in said if state == wanted] for wanted in ("refuses", "warns"))
    return code, refused, warnings


def do_as_told(broker: GuardedBroker, cure: str) -> None:
    """Grant what a cure asks for, as an operator who types it would."""
    words = shlex.split(cure)
    assert ["kafka-acls", "--bootstrap-server"] == words[:2]
    assert ["--add", "--allow-principal", "User:NAME"] == words[words.index("--add") :][:3]
    operations = [word for before, word in pairwise(words) if before == "--operation"]
    place = next(at for at, word in enumerate(words) if word in KINDS)
    name = "kafka-cluster" if words[place] == "--cluster" else words[place + 1]
    names = {"DescribeConfigs": "DESCRIBE_CONFIGS"}
    kind = KINDS[words[place]]
    allow(broker, [(kind, name, AclOperation[names.get(each, each.upper())]) for each in operations])


def run(config: Config) -> int:
    """Run the service in this process, to the ends of its partitions."""
    return service(config, ThreadRounds, Stop()).run(until_end=True)


def test_what_is_missing_is_exactly_what_is_needed(strict: GuardedBroker) -> None:
    """Each missing right is named. With the required rights the service works; with all rights nothing warns."""
    name = f"told-{time.monotonic_ns()}"
    topics(strict, name)
    broker = Producer({"bootstrap.servers": strict.bootstrap})
    broker.produce(f"{name}-raw", b"rubbish")
    broker.flush()
    config = configuration(strict, name, "starting.offsets=error")
    code, refused, _ = checked(config)

    assert 3 == code
    assert [
        f"Winnow lacks Describe and Read on topic '{name}-raw'",
        f"Winnow lacks Describe and Read and Write on topic '{name}-clean'",
        f"Winnow lacks Describe and Read and Write on topic '{name}-dead'",
        f"Winnow lacks Describe and Read on group '{name}'",
    ] == [each.partition(": ")[0] for each in refused[:4]]
    with pytest.raises(NotAllowed) as raised:
        run(config)
    assert refused == str(raised.value).splitlines()

    for each in refused:
        do_as_told(strict, each.rpartition(": ")[2])
    config = configuration(strict, name)
    code, refused, warnings = checked(config)
    assert (0, []) == (code, refused)
    assert 0 == run(config)

    for each in warnings:
        if "kafka-acls" in each:
            do_as_told(strict, each.rpartition(": ")[2])
    code, refused, warnings = checked(configuration(strict, name, "starting.offsets=error"))
    assert (0, [], []) == (code, refused, warnings)


@pytest.mark.parametrize(
    ("kind", "resource", "operation"),
    [
        (ResourceType.TOPIC, "{}-raw", AclOperation.READ),
        (ResourceType.TOPIC, "{}-clean", AclOperation.WRITE),
        (ResourceType.TOPIC, "{}-dead", AclOperation.WRITE),
        (ResourceType.GROUP, "{}", AclOperation.READ),
        (ResourceType.GROUP, "{}", AclOperation.DESCRIBE),
        (ResourceType.TRANSACTIONAL_ID, "winnow/{}/", AclOperation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, "winnow/{}/", AclOperation.DESCRIBE),
    ],
)
def test_each_right_is_missed(
    guarded: GuardedBroker, kind: ResourceType, resource: str, operation: AclOperation
) -> None:
    """The preflight names exactly the denied right."""
    name = f"denied-{time.monotonic_ns()}"
    topics(guarded, name)
    deny = AclBinding(
        kind,
        resource.format(name),
        ResourcePatternType.PREFIXED if kind is ResourceType.TRANSACTIONAL_ID else ResourcePatternType.LITERAL,
        "User:winnow",
        "*",
        operation,
        AclPermissionType.DENY,
    )
    create(guarded, [deny])
    config = configuration(guarded, name)

    found = without(Unreachable, Preflight(config, clients(config)).rights, "Kafka's answers")
    (refused,) = [each for each in found if each.severity is Severity.REFUSES]

    if kind is ResourceType.TRANSACTIONAL_ID:
        assert f"--operation Write --transactional-id {resource.format(name)} " in refused.error.cure
    else:
        denied = operation.name.title()
        words = str(refused).partition(": ")[0]
        assert denied in words
        assert repr(resource.format(name)) in words


def test_a_topic_that_only_the_pattern_means_may_be_unreadable(guarded: GuardedBroker) -> None:
    """The service reads the other topics to their ends, and `check` names the right that it lacks."""
    name = f"theirs-{time.monotonic_ns()}"
    topics(guarded, name)
    theirs = guarded.create_topic(f"{name}-raw-theirs")
    allow(guarded, [(ResourceType.TOPIC, theirs, AclOperation.DESCRIBE)])
    broker = Producer({"bootstrap.servers": guarded.bootstrap})
    for topic in (f"{name}-raw", theirs):
        broker.produce(topic, b"rubbish")
    broker.flush()
    config = configuration(guarded, name, "source.topics=[]", f"source.topics.pattern={name}-raw.*")

    code, refused, warnings = checked(config)

    assert (0, []) == (code, refused)
    assert 1 == sum(f"lacks Read on topic '{theirs}', so its partitions are not read" in each for each in warnings)
    assert 0 == run(config)
    until(lambda: ends(guarded)[f"{name}-dead-0"] == 2, "the record and, moments later, the end of its transaction")


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedBroker]:
    """Return a broker that allows what no ACL denies."""
    # The offsets would expire in the midst of a test, ten minutes after the start.
    expiry = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "86400000"}
    with GuardedBroker({**expiry, **PROPERTIES}) as broker:
        wait_for_coordinators(broker)
        yield broker


def ends(broker: GuardedBroker) -> dict[str, int]:
    """Return the end of each partition of the cluster, including Kafka's own topics."""
    admin = broker.admin()
    known = admin.list_topics(timeout=PATIENCE).topics
    partitions = [TopicPartition(name, number) for name, topic in known.items() for number in topic.partitions]
    asked = admin.list_offsets(
        {each: OffsetSpec.latest() for each in partitions},  # type: ignore[no-untyped-call]
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=PATIENCE,
    )
    return {f"{at.topic}-{at.partition}": future.result().offset for at, future in asked.items()}


def test_nothing_changes(guarded: GuardedBroker) -> None:
    """The preflight writes no record in any topic, Kafka's own included, and does not fence a running task."""
    name = f"quiet-{time.monotonic_ns()}"
    topics(guarded, name)
    config = configuration(guarded, name)
    assert 0 == run(config)
    identity = f"winnow/{name}/{name}-raw/0"
    own: dict[str, str | int] = {"transactional.id": identity, "transaction.timeout.ms": 600_000, "log_level": 0}
    task = Producer({"bootstrap.servers": guarded.bootstrap, **own})
    task.init_transactions(PATIENCE)
    task.begin_transaction()
    task.produce(f"{name}-clean", b"line")
    task.flush()
    before = ends(guarded)

    code, refused, _ = checked(config)

    assert (0, []) == (code, refused)
    assert before == ends(guarded)
    task.commit_transaction(PATIENCE)


def test_the_brokers_and_their_clock(guarded: GuardedBroker) -> None:
    """The real broker's requests are recognised. A local clock that is slow is reported; a correct one is not."""
    name = f"clock-{time.monotonic_ns()}"
    topics(guarded, name)
    config = configuration(guarded, name)
    assert 0 == run(config)

    def found(late: float) -> list[str]:
        runtime = replace(REAL, wall_clock=lambda: time.time() - late)
        preflight = Preflight(config, clients(config), runtime)
        without(Unreachable, preflight.rights, "Kafka's answers")
        assert "4.1" == preflight.release
        return [
            str(each) for each in without(Unreachable, preflight.settings, "more of them") if "clock is" in str(each)
        ]

    assert [] == found(0)
    (said,) = found(300)
    assert "s behind the brokers' clocks: synchronize this machine" in said


def test_settings_that_harm(guarded: GuardedBroker) -> None:
    """Each harmful setting of topics and brokers is named."""
    name = f"harm-{time.monotonic_ns()}"
    guarded.create_topic(f"{name}-raw", config={"cleanup.policy": "compact", "max.message.bytes": "2000000"})
    sink = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2"}
    guarded.create_topic(f"{name}-clean", config=sink)
    guarded.create_topic(f"{name}-dead", config={"message.timestamp.before.max.ms": "1000"})

    code, refused, warnings = checked(configuration(guarded, name))

    assert 3 == code
    (refusal,) = refused
    assert f"the sink '{name}-clean' accepts no records" in refusal
    for words in ("is compacted", "LogAppendTime", "are truncated", "after an outage"):
        assert 1 == sum(words in each for each in warnings), words


def test_a_cluster_is_known_by_its_id_whatever_its_brokers_are_called(strict: GuardedBroker) -> None:
    """By cluster id, a sink topic that is also a source is refused, and no placeholder is a source."""
    name = f"same-{time.monotonic_ns()}"
    topics(strict, name)
    port = strict.bootstrap.rpartition(":")[2]
    written = [f"sink.topic={name}-clean", f"dead.letters.topic={name}-dead", "http.enabled=false", f"group.id={name}"]
    brokers = [f"kafka.bootstrap.servers=localhost:{port}", f"sink.kafka.bootstrap.servers=127.0.0.1:{port}"]

    feeds_itself = load(None, [f"source.topics.pattern={name}.*", *written, *brokers], {})
    assert "'" in undecided(feeds_itself)
    code, refused, _ = checked(feeds_itself)
    assert (3, 2) == (code, len(refused))
    assert all("sink.kafka is the source's cluster (id " in each for each in refused)
    with pytest.raises(NotUsable, match="Winnow would read its own output"):
        run(feeds_itself)

    config = load(None, [f"source.topics.pattern={name}-raw.*", *written, *brokers], {})
    assert [0, 0] == [run(config), run(config)]
    found = strict.admin().list_topics(timeout=PATIENCE).topics
    assert [f"{name}-raw.winnow-offsets"] == [
        each for each in found if each.endswith(".winnow-offsets") and name in each
    ]
