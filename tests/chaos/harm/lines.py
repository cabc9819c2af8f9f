"""Brings lines that a service has already dealt with before it once more; none may come twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from app.embedded.broker import Broker
from tests.chaos.aside import PARTITIONS, START_SECONDS, Aside
from tests.chaos.brokers import SHORT_LIVED
from tests.chaos.cluster import ELSEWHERE, SPARE, System, until
from tests.chaos.harm.base import bring_back
from tests.chaos.load import Load
from tests.chaos.views import expect_agreement

STEP = "40"
"""So many dead letters are replayed at once; there are a few hundred."""
BLOCKED, LEFT_BEHIND = "partition_blocked", "exists only on the source's cluster"


@contextmanager
def dead_letters_replayed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """
    Mend a service that has rejected every line twice, and replay its dead letters in steps while it runs.

    Every dead letter bears the time of its writing (LogAppendTime), so the two of a record differ in time.
    """
    aside = Aside(system, dead={"message.timestamp.type": "LogAppendTime"})
    aside.config["source"] = {"topics": [aside.topics["raw"]], "format": "flume-avro"}
    with aside:
        aside.write("raw")
        aside.await_start("raw")
        aside.end()
        aside.set_back("raw")
        aside.start()
        aside.await_start("raw")
        aside.end()
        aside.config.clear()
        aside.start()
        yield "every dead letter twice"
        replayed = 1
        while replayed:
            aside.write("raw")
            replayed = aside.command("dlq", "replay", "--limit", STEP, "--reason", "envelope", "--json").value[
                "replayed"
            ]
        aside.expect_all_cleansed("raw")
        aside.expect_each_line_once()


@contextmanager
def sink_moved(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """
    Give a service `sink.kafka` while one of its source partitions has no leader: it must not begin anew.

    Its offsets are left behind on the source's cluster; a person takes them along (`winnow offsets migrate`).
    """
    nodes = {"raw": [(ELSEWHERE,), (SPARE,)]}
    with Aside(system, nodes) as aside, Broker(java=SHORT_LIVED) as centre:
        aside.write("raw")
        aside.await_start("raw")
        aside.end()
        system.broker.kill(SPARE)
        for role in ("clean", "dead"):
            centre.create_topic(aside.topics[role], PARTITIONS)
        kafka = {"bootstrap.servers": centre.bootstrap}
        aside.config["sink"] = {"topic": aside.topics["clean"], "kafka": kafka}
        aside.start()
        yield f"node {SPARE}"
        until(lambda: aside.driver.logged(BLOCKED), START_SECONDS)
        bring_back(system, SPARE)
        aside.write("raw")
        until(lambda: len(_left_behind(aside)) == 2 * PARTITIONS, START_SECONDS)
        expect_agreement(system, aside.driver, "offsets that were left behind")
        aside.end()
        code, _, words = aside.command("offsets", "migrate", "--from", "source", "--to", "kafka")
        if code:
            system.recorder.record("seen", anomaly="stuck", what=f"winnow offsets migrate ended with {code}: {words}")
        aside.start()
        aside.expect_all_cleansed("raw")
        aside.expect_each_line_once(centre.bootstrap)


def _left_behind(aside: Aside) -> set[tuple[str, int]]:
    """Return the partitions of its two source topics that wait because their offset was left behind."""
    blocked = aside.driver.logged(BLOCKED)
    return {(each["topic"], each["partition"]) for each in blocked if LEFT_BEHIND in each["error"]}
