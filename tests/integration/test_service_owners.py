"""Two services with one group on a real Kafka: another sink is refused, and of two equal ones the later continues."""

from __future__ import annotations

from pathlib import Path

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Feeder, amiss, by_partition, commit, committed, read
from tests.integration.service import Winnow, settings
from tests.support.waiting import until

PARTITIONS = 2


def test_two_services_of_one_group(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """The earlier one exits with 3 and names the later, which continues. Nothing is lost or duplicated."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)

    with Feeder(broker.bootstrap, source, PARTITIONS, 200) as feeder, Winnow(config, tmp_path) as earlier:
        until(lambda: len(by_partition(read(broker.bootstrap, sink))) == PARTITIONS, "a flow")
        with Winnow(config, tmp_path) as later:
            assert 3 == earlier.code()
            before = len(read(broker.bootstrap, sink))
            until(lambda: len(read(broker.bootstrap, sink)) > before + 100, "a flow from the later service")
            feeder.stop()
            until(lambda: len(read(broker.bootstrap, sink)) >= feeder.written.total(), "the end")
            assert 0 == later.stop()

    assert {} == amiss(feeder.written, read(broker.bootstrap, sink))
    (error,) = [text for text in earlier.noise if text.startswith("winnow:")]
    assert f"a later run of the service works for group '{sink}': the service on " in error
    assert "give it another group.id" in error


def test_another_sink(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """
    The second service exits with 3 before it changes anything, and names the sink of the first.

    To change the sink on purpose, commit the same offsets with Kafka's own tool, which drops the metadata.
    """
    source, sink, other, dead = topics("raw"), topics("clean"), topics("other"), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    elsewhere = config | {"sink": {"topic": other}}

    with Feeder(broker.bootstrap, source, 1, 200) as feeder, Winnow(config, tmp_path) as first:
        until(lambda: read(broker.bootstrap, sink), "a flow")
        with Winnow(elsewhere, tmp_path) as second:
            assert 3 == second.code()
        feeder.stop()
        until(lambda: len(read(broker.bootstrap, sink)) >= feeder.written.total(), "the end")
        assert 0 == first.stop()
    (error,) = [text for text in second.noise if text.startswith("winnow:")]
    assert f"writes to '{other}' here, but the offset of {source}-0 was committed by the service on " in error
    assert f"writes to {sink}: two services would split the records" in error

    commit(broker.bootstrap, sink, committed(broker.bootstrap, sink, source))
    written = feeder.written.total()
    with Feeder(broker.bootstrap, source, 1, 200) as more, Winnow(elsewhere, tmp_path) as third:
        until(lambda: read(broker.bootstrap, other), "a flow to the other sink")
        more.stop()
        until(lambda: len(read(broker.bootstrap, other)) >= more.written.total(), "the end")
        assert 0 == third.stop()
    assert written == len(read(broker.bootstrap, sink))
    assert more.written.total() == len(read(broker.bootstrap, other))
