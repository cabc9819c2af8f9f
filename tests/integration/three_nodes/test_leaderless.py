"""One of three nodes is down, and with it the leaders of some source partitions: the others continue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from app.config import load
from app.driver.discover import Discovery
from app.driver.workload import Workload
from app.embedded.broker import Broker
from app.errors import Leaderless, Unreachable
from app.model import Partition
from app.start import clients
from tests.independent import Written, cleansed, line, produce, read, values
from tests.integration.service import Winnow, settings
from tests.integration.three_nodes.placed import FRAGILE_NODE
from tests.support.waiting import until, without

PARTITIONS = 6
BLOCKED = "partition_blocked"


@contextlib.contextmanager
def away(broker: Broker) -> Iterator[None]:
    """Kill the node, and restart it at the end."""
    broker.kill(FRAGILE_NODE)
    try:
        yield
    finally:
        broker.start(FRAGILE_NODE)


def create(broker: Broker, name: str) -> set[Partition]:
    """Create a source without replicas and replicated targets; return the partitions that the node leads."""
    source = broker.create_topic(f"{name}.raw", PARTITIONS)
    for role in ("clean", "dead"):
        broker.create_topic(f"{name}.{role}", replication=3)
    produce(broker.bootstrap, source, [Written(line(n), None, n) for n in range(PARTITIONS)])
    led = broker.admin().list_topics(source, timeout=60).topics[source].partitions
    return {Partition(source, number) for number, each in led.items() if each.leader == FRAGILE_NODE}


def test_discovery_goes_on_without_the_leaderless(three: Broker) -> None:
    """After the kill, discovery plans the other partitions. It recovers when the node is back."""
    lost = create(three, "found")
    flags = ["group.id=found", "source.topics=found.raw", "sink.topic=found.clean", "dead.letters.topic=found.dead"]
    config = load(None, [*flags, f"kafka.bootstrap.servers={three.bootstrap}"], {})
    discovery = Discovery(config, clients(config))
    found: list[Workload] = []

    def sees(blocked: set[Partition]) -> bool:
        try:
            found.append(discovery.discover())
        except Unreachable:
            return False
        return blocked == found[-1].blocked.keys()

    until(lambda: sees(set()), "all partitions")
    with away(three):
        until(lambda: sees(lost), "the leaderless partitions")
        others = found[-1]
        survey = without(Unreachable, discovery.refresh, "an answer")
    until(lambda: sees(set()), "the node")

    assert lost
    assert {Leaderless} == {type(error) for error in others.blocked.values()}
    assert PARTITIONS - len(lost) == len(others.ranges)
    assert lost == set(survey.unreadable)
    assert others.offsets == survey.offsets
    assert PARTITIONS == len(found[-1].ranges)


def blocked(service: Winnow) -> set[int]:
    """Return the partitions that a service has reported as blocked."""
    return {each["partition"] for each in service.logged(BLOCKED)}


def test_a_service_goes_on_without_the_leaderless(three: Broker, tmp_path: Path) -> None:
    """The other partitions' lines arrive. The log names each waiting partition, which resumes with the node."""
    lost = create(three, "served")
    config = settings(
        three.bootstrap,
        group="served",
        sources=["served.raw"],
        sink="served.clean",
        dead="served.dead",
    )

    def arrived() -> set[bytes | None]:
        return set(values(read(three.bootstrap, "served.clean")))

    with contextlib.ExitStack() as harm:
        harm.enter_context(away(three))
        with Winnow(config, tmp_path) as service:
            until(lambda: blocked(service) == {each.number for each in lost}, "a line for each of them")
            until(lambda: len(arrived()) == PARTITIONS - len(lost), "the lines of the others")
            harm.close()
            service.wait_for("partition_unblocked", times=len(lost))
            until(lambda: len(arrived()) == PARTITIONS, "the other lines")
            code = service.stop()

    assert 0 == code
    assert {cleansed(n) for n in range(PARTITIONS)} == arrived()
    assert {partition.number for partition in lost} == blocked(service)
