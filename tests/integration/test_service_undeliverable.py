"""One of eight sink partitions has no leader for a while: the other seven notice next to nothing."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.driver.rebalance import STALLED_SECONDS
from app.embedded.broker import Broker
from tests.conftest import QUICK_JAVA
from tests.independent import Feeder, by_partition, committed, ends, read, sequence
from tests.integration.service import Event, Winnow, settings
from tests.integration.tasks import until

PARTITIONS = 8
LOST = 7
"""The sink partition that only the third node has, which has nothing else."""
AWAY_SECONDS = STALLED_SECONDS + 10
LONGEST_PAUSE = 5.0
"""What the outage may add to the pauses of the machine itself; 2 s is what is wanted."""
CALM_SECONDS = 10
REBALANCE = "the round ends for a rebalance"
INTERNAL = {name: {"cleanup.policy": "compact"} for name in ("__consumer_offsets", "__transaction_state")}
PER_SECOND = 1_600
FLOW_SECONDS = 180


@pytest.fixture
def three() -> Iterator[Broker]:
    """Return three nodes, the last of which has one partition of the sink, and nothing else."""
    with Broker(nodes=3, java=QUICK_JAVA) as broker:
        others = [[1], [2]] * 4
        homes = dict.fromkeys(INTERNAL, [[1, 2]] * 5)
        homes |= {"raw": others, "clean": [*others[:LOST], [3]], "dead": [[1]]}
        placed = [
            NewTopic(name, len(on), replica_assignment=on, config=INTERNAL.get(name, {"retention.ms": "-1"}))
            for name, on in homes.items()
        ]
        admin = broker.admin()
        for created in admin.create_topics(placed).values():
            created.result(30)
        yield broker


class Watch:
    """A reader of committed records that remembers when each partition brought some."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "watch", "log_level": 0, "isolation.level": "read_committed"}
            | {"enable.auto.commit": False, "fetch.wait.max.ms": 20, "reconnect.backoff.max.ms": 1000}
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._seen: defaultdict[int, list[float]] = defaultdict(list)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(10_000, 0.02)
            now = time.monotonic()
            for partition in {message.partition() for message in messages if message.error() is None}:
                self._seen[partition or 0].append(now)

    def all_since(self, moment: float) -> bool:
        """Whether each partition has brought something since then."""
        return all(self._seen[number][-1:] > [moment] for number in range(PARTITIONS))

    def pauses(self, since: float, to: float) -> dict[int, float]:
        """Return the longest pause of each partition between two moments."""
        return {
            number: max(later - one for one, later in pairwise([since, *(t for t in seen if since < t < to), to]))
            for number, seen in sorted(self._seen.items())
        }


class Lost(NamedTuple):
    """The longest pauses of each partition before and during the outage, the rebalances in it, and the service."""

    before: dict[int, float]
    during: dict[int, float]
    rebalances: list[Event]
    service: Winnow


def lose(broker: Broker, folder: Path, seconds: float) -> Lost:
    """Run the service, kill the node for so long, and let everything arrive."""
    topics = {"sources": ["raw"], "sink": "clean", "dead": "dead"}
    config = settings(broker.bootstrap, group="lost", **topics, round_interval="2s")  # type: ignore[arg-type]  # str, list
    feeder = Feeder(broker.bootstrap, "raw", PARTITIONS, PER_SECOND)
    with Winnow(config, folder) as service, Watch(broker.bootstrap, "clean") as watch, feeder:
        until(lambda: watch.all_since(0), FLOW_SECONDS, "a flow")
        calm = time.monotonic()
        time.sleep(CALM_SECONDS)
        before = watch.pauses(calm, time.monotonic())
        feeder.paused.add(LOST)
        until(lambda: caught_up(broker), FLOW_SECONDS, "the lost partition's last commit")
        earlier = len(service.logged(REBALANCE))
        began = time.monotonic()
        broker.kill(3)
        feeder.paused.clear()
        time.sleep(seconds)
        ended = time.monotonic()
        during, rebalances = watch.pauses(began, ended), service.logged(REBALANCE)[earlier:]
        broker.start(3)
        back = time.monotonic()
        until(lambda: watch.all_since(back), FLOW_SECONDS, "the lost partition")
        feeder.stop()
        until(lambda: everything(broker) >= feeder.written.total(), FLOW_SECONDS, "the end")
        assert 0 == service.stop(within=30)
    assert ended - began >= seconds
    assert sequence(feeder.written) == by_partition(read(broker.bootstrap, "clean"))
    return Lost(before, during, rebalances, service)


def caught_up(broker: Broker) -> bool:
    """
    Whether everything of the partition is committed, and readable.

    Kafka 4 skips the markers of a transaction in a partition without a leader, as if its topic were deleted: records that
    were committed in the moment of the kill may be aborted later, whoever wrote them.
    """
    end = ends(broker.bootstrap, "raw")["raw", LOST]
    done = committed(broker.bootstrap, "lost", "raw").get(("raw", LOST)) == end
    return done and end <= len(by_partition(read(broker.bootstrap, "clean")).get(LOST, []))


def everything(broker: Broker) -> int:
    """Count the committed lines."""
    return len(read(broker.bootstrap, "clean"))


def test_a_sink_partition_without_a_leader(three: Broker, tmp_path: Path) -> None:
    """The others go on, the round too; the log names the partition once; it goes on by itself, and nothing is lost."""
    before, during, rebalances, service = lose(three, tmp_path, AWAY_SECONDS)

    print(f"longest pauses before {before} and during the outage {during}")  # pytest shows it with -s
    others = during.keys() - {LOST}
    assert max(during[each] for each in others) <= max(before.values()) + LONGEST_PAUSE
    assert not rebalances
    (waits,) = service.logged("partition waits; the others go on")
    assert LOST == waits["partition"]
    assert "clean-7" in waits["error"]
    assert 1 == len(service.logged("partition goes on"))
