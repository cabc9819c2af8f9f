"""Source and sink on two Kafka clusters: still exactly once, because output and offset share the sink's transaction."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.embedded.broker import Broker, Cluster
from tests.conftest import QUICK_JAVA, Topics
from tests.independent import (
    Feeder,
    Written,
    amiss,
    by_partition,
    cleansed,
    client,
    committed,
    connect_again,
    grow,
    held,
    line,
    produce,
    read,
    values,
)
from tests.integration.service import Winnow, settings
from tests.support.waiting import end, until

OUTAGE_SECONDS = 12
AUTO_CREATION = {"auto.create.topics.enable": "true"}
"""These brokers create topics on demand: none may appear that was not created explicitly."""


@pytest.fixture(scope="module")
def centre() -> Iterator[Broker]:
    """Return the cluster of the sink."""
    with Broker(java=QUICK_JAVA, properties=AUTO_CREATION) as broker:
        yield broker


def configured(edge: str, centre: Broker, source: str, **more: object) -> dict[str, Any]:
    """Create the sink's topics. Return the configuration of a service from the edge to the centre."""
    sink, dead = f"{source}.clean", f"{source}.dead"
    for topic in (sink, dead):
        centre.create_topic(topic, 2)
    config = settings(edge, group=source, sources=[source], sink=sink, dead=dead, **more)
    config["sink"]["kafka"] = {"bootstrap.servers": centre.bootstrap}
    return config


def test_from_one_cluster_to_another(broker: Cluster, centre: Broker, topics: Topics, tmp_path: Path) -> None:
    """Each record arrives once, offsets are in the sink's cluster, and a second run continues with new partitions."""
    source = topics("raw", 2)
    config = configured(broker.bootstrap, centre, source)
    placeholder = f"{source}.winnow-offsets"
    produce(broker.bootstrap, source, [Written(line(n, n % 2), None, n % 2) for n in range(200)] + [Written(b"bad")])

    with Winnow(config, tmp_path, "--until-end") as first:
        codes = [first.code()]
    grow(broker.bootstrap, source, 3)
    produce(broker.bootstrap, source, [Written(line(n, 2), None, 2) for n in range(50)])
    with Winnow(config, tmp_path, "--until-end") as second:
        codes.append(second.code())

    assert [0, 0] == codes
    assert [201, 50] == [run.logged("stopped")[0]["records"] for run in (first, second)]
    assert [b"bad"] == values(read(centre.bootstrap, f"{source}.dead"))
    seen = by_partition(read(centre.bootstrap, f"{source}.clean"))
    assert 250 == sum(map(len, seen.values())) == len({value for part in seen.values() for value in part})
    known = committed(centre.bootstrap, source, placeholder)
    assert 251 == sum(known.values())
    assert [(placeholder, 0), (placeholder, 1), (placeholder, 2)] == sorted(known)
    assert {f"{source}.clean", f"{source}.dead", placeholder} == topics_of(centre, source)


def test_a_cluster_of_its_own_for_a_sink_that_had_none(
    broker: Cluster, centre: Broker, topics: Topics, tmp_path: Path
) -> None:
    """A service whose sink moves to its own cluster says where the offsets are; after a migration it counts anew."""
    source = topics("raw", 2)
    apart = configured(broker.bootstrap, centre, source)
    for topic in ("clean", "dead"):
        broker.create_topic(f"{source}.{topic}", 2)
    together = {**apart, "sink": {"topic": f"{source}.clean"}}
    file = tmp_path / "apart.yaml"
    file.write_text(json.dumps(apart))

    def offsets(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["offsets", "migrate", "-c", str(file), *arguments])

    produce(broker.bootstrap, source, [Written(line(n, n % 2), None, n % 2) for n in range(20)])
    with Winnow(together, tmp_path, "--until-end") as first:
        assert 0 == first.code()
    produce(broker.bootstrap, source, [Written(line(20))])
    with Winnow(apart, tmp_path, "--until-end") as blocked:
        assert 1 == blocked.code()
    untouched = committed(broker.bootstrap, source, source)
    dry, moved = offsets("--from", "source", "--to", "kafka", "--dry-run"), offsets("--from", "source", "--to", "kafka")
    with Winnow(apart, tmp_path, "--until-end") as second:
        assert 0 == second.code()
    shown = CliRunner().invoke(main, ["offsets", "show", "-c", str(file), "--json"])

    events = blocked.logged("partition_blocked")
    assert {0, 1} == {each["partition"] for each in events}
    assert all("migrate -c winnow.yaml --from source --to kafka" in str(each["error"]) for each in events)
    assert {(source, 0): 10, (source, 1): 10} == untouched
    assert [0, 0] == [dry.exit_code, moved.exit_code], dry.output + moved.output
    assert [1] == [each["records"] for each in second.logged("stopped")]
    assert [cleansed(20)] == values(read(centre.bootstrap, f"{source}.clean"))
    placeholder = f"{source}.winnow-offsets"
    assert {(placeholder, 0): 11, (placeholder, 1): 10} == committed(centre.bootstrap, source, placeholder)
    assert [(10, 1), (10, 0)] == [(each["since"], each["in"]) for each in json.loads(shown.stdout)["partitions"]]


def topics_of(broker: Cluster, prefix: str) -> set[str]:
    return {name for name in client(broker.bootstrap).list_topics(timeout=60).topics if name.startswith(prefix)}


@pytest.mark.parametrize("away", ["source", "sink"])
def test_a_cluster_goes_away(mortal: Broker, centre: Broker, tmp_path: Path, away: str) -> None:
    """Either cluster is killed under load, and so are workers. Afterwards each record is there once, in order."""
    source = mortal.create_topic(f"away-{away}", 2)
    config = configured(mortal.bootstrap, centre, source)
    victim = mortal if away == "source" else centre

    def done() -> int:
        placeholders = topics_of(centre, f"{source}.winnow")
        return sum(committed(centre.bootstrap, source, *placeholders).values())

    with Feeder(mortal.bootstrap, source, 2, 500) as feeder, Winnow(config, tmp_path) as service:
        until(lambda: done() > 500, "a flow")
        end([random.choice(until(lambda: service.workers, "a worker"))])
        victim.kill()
        time.sleep(OUTAGE_SECONDS)
        victim.start()
        connect_again()
        goal = feeder.written.total()
        until(lambda: done() > goal, "the flow to go on")
        code = service.stop()
    with Winnow(config, tmp_path, "--until-end") as again:
        assert 0 == again.code()

    assert 0 == code
    found = read(centre.bootstrap, f"{source}.clean")
    assert held(mortal.bootstrap, source) == by_partition(found), amiss(feeder.written, found)
