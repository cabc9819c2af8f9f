"""Adverse conditions for a running service: retention, operators, broker refusals, and invalid input only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from structlog.testing import capture_logs

from app.embedded.broker import Cluster
from app.model import Guarantee
from tests import independent
from tests.conftest import Topics
from tests.independent import Written, arrived, by_partition, cleansed, committed, line, lines, produce, read
from tests.integration.in_process import run, services
from tests.integration.service import settings
from tests.integration.status_page import metrics
from tests.support.waiting import PATIENCE, until


def test_retention_overtakes_a_running_service(broker: Cluster, topics: Topics) -> None:
    """
    Records behind an open transaction are deleted before they can be read: their range is named and counted.

    `error` blocks the partition, `nearest` continues after the gap. The other partition continues with both.
    """
    source, sinks, dead = topics("raw", 2), {each: topics(each, 2) for each in ("error", "nearest")}, topics("dead")
    configs = [
        settings(
            broker.bootstrap,
            group=sink,
            sources=[source],
            sink=sink,
            dead=dead,
            out_of_range=policy,
        )
        for policy, sink in sinks.items()
    ]
    produce(broker.bootstrap, source, lines(0, 10, 0, 1))
    with services(*configs) as (told, ends):
        for sink in sinks.values():
            arrived(broker.bootstrap, sink, 20)
        own: dict[str, str | int] = {"transactional.id": source, "transaction.timeout.ms": 600_000}
        upstream = Producer({"bootstrap.servers": broker.bootstrap, **own})
        upstream.init_transactions(PATIENCE)
        upstream.begin_transaction()
        upstream.produce(source, line(10), partition=0)
        upstream.flush(PATIENCE)
        produce(broker.bootstrap, source, lines(11, 16, 0))
        for deleted in independent.client(broker.bootstrap).delete_records([TopicPartition(source, 0, 16)]).values():
            deleted.result(PATIENCE)
        blocked = told.wait_for("partition_blocked")
        skipped = told.wait_for("offsets_skipped")
        upstream.abort_transaction(PATIENCE)
        produce(broker.bootstrap, source, lines(16, 20, 0, 1))
        arrived(broker.bootstrap, sinks["error"], 24)
        arrived(broker.bootstrap, sinks["nearest"], 28)
        pages = [metrics(each["url"]) for each in told.all("status_page_up")]
        codes = [end() for end in ends]

    assert [0, 0] == codes
    assert (source, 0) == (blocked["topic"], blocked["partition"])
    assert "offsets 10 to 15 (at most 6) were deleted before they were read" in blocked["error"]
    assert (0, 10, 16) == (skipped["partition"], skipped["start"], skipped["end"])
    assert [6, 6] == [page["winnow_lost_offsets_total", "0", source] for page in pages]
    before, behind = list(range(10)), list(range(16, 20))
    wanted = {"error": (before, before + behind), "nearest": (before + behind, before + behind)}
    for policy, sink in sinks.items():
        expected = {each: [cleansed(n, each) for n in numbers] for each, numbers in enumerate(wanted[policy])}
        assert expected == by_partition(read(broker.bootstrap, sink))


def test_an_operator_meddles_with_the_offsets(broker: Cluster, topics: Topics) -> None:
    """If offsets are reset or deleted under a running service, it logs that, keeps its place and duplicates nothing."""
    source, sink, dead = topics("raw", 3), topics("clean", 3), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    produce(broker.bootstrap, source, lines(0, 10, 0, 1, 2))

    def all_stand_at(offset: int) -> bool:
        return committed(broker.bootstrap, sink, source) == {(source, n): offset for n in range(3)}

    def seen_by_the_driver() -> None:
        told.wait_for("progress", times=len(told.all("progress")) + 2)

    def moved_back() -> None:
        independent.commit(broker.bootstrap, sink, {(source, n): 3 for n in range(3)})

    def deleted() -> None:
        try:
            independent.client(broker.bootstrap).delete_consumer_groups([sink])[sink].result(PATIENCE)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:  # no lane has committed since the last time
                raise

    def meddle_until_told(what: str, meddle: Callable[[], None]) -> None:
        """Repeat it: a lane that commits before the driver looks has repaired the offset, and nobody needs to be told."""

        def told_of_it() -> bool:
            meddle()
            seen_by_the_driver()
            return any(f"the group's offset {what}" in each["reason"] for each in told.all("rebalance"))

        until(told_of_it, f"a rebalance because the offset {what}")

    with services(config) as (told, (end,)):
        until(lambda: all_stand_at(10), "the first lines")
        seen_by_the_driver()
        meddle_until_told("was moved back", moved_back)
        until(lambda: all_stand_at(10), "the old offsets")
        told.wait_for("round")
        seen_by_the_driver()
        meddle_until_told("vanished", deleted)
        produce(broker.bootstrap, source, lines(10, 12, 0, 1, 2))
        until(lambda: all_stand_at(12), "all lines")
        code = end()

    assert 0 == code
    expected = {each: [cleansed(n, each) for n in range(12)] for each in range(3)}
    assert expected == by_partition(read(broker.bootstrap, sink))
    assert not told.all("partition_blocked")


RUBBISH: Sequence[bytes | None] = (b"rubbish", None, b"", b"<<<!>>>", line(1)[:-40], b"\xff\x00" * 50)


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_nothing_but_rubbish(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """All records become dead letters, unchanged and in order. The sink stays empty, and the service exits normally."""
    source, sink, dead = topics("raw", 2), topics("clean", 2), topics("dead", 2)
    config = settings(
        broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead, delivery_guarantee=guarantee.value
    )
    count = 30_000
    bad = [RUBBISH[n % len(RUBBISH)] for n in range(count)]
    for partition in range(2):
        produce(broker.bootstrap, source, [Written(value, b"%d" % n, partition) for n, value in enumerate(bad)])

    with capture_logs() as logs:
        code, _ = run(config)

    assert 0 == code
    (stopped,) = [each for each in logs if each["event"] == "stopped"]
    assert (2 * count, 0, 2 * count) == (stopped["records"], stopped["out"], stopped["dead"])
    assert [] == read(broker.bootstrap, sink)
    assert {0: bad, 1: bad} == by_partition(read(broker.bootstrap, dead))
