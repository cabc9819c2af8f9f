"""A Kafka that is not there, or goes away, is waited for: the service goes on by itself, and says so once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.embedded.broker import Broker
from app.model import Guarantee
from tests import independent
from tests.independent import Feeder, Written, by_partition, cleansed, line, produce, read, sequence, values
from tests.integration.service import Winnow, settings
from tests.integration.tasks import BOTH_GUARANTEES, until

PARTITIONS = 4
RECOVERY_SECONDS = 240


@pytest.fixture(scope="module")
def mortal() -> Iterator[Broker]:
    """Return a broker that these tests may kill."""
    with Broker() as broker:
        yield broker


def create(broker: Broker, name: str) -> dict[str, object]:
    """Create topics and return a configuration for them."""
    for role in ("raw", "clean", "dead"):
        broker.create_topic(f"{name}.{role}", PARTITIONS)
    return settings(broker.bootstrap, group=name, sources=[f"{name}.raw"], sink=f"{name}.clean", dead=f"{name}.dead")


def test_a_broker_that_starts_later(mortal: Broker, tmp_path: Path) -> None:
    """A service that starts before Kafka says once that it waits, and does its work when Kafka is there."""
    config = create(mortal, "later")
    produce(mortal.bootstrap, "later.raw", [Written(line(n)) for n in range(100)])
    mortal.stop()

    with Winnow(config, tmp_path, "--until-end") as service:
        service.wait_for("waiting for Kafka")
        patience = len(service.said("waiting for Kafka"))
        mortal.start()
        service.wait_for("Kafka is back")
        code = service.code()

    assert 0 == code
    assert 1 == patience == len(service.said("waiting for Kafka"))
    assert [cleansed(n) for n in range(100)] == values(read(mortal.bootstrap, "later.clean"))


def test_a_stop_while_waiting(mortal: Broker, tmp_path: Path) -> None:
    """A service that waits for Kafka stops with 0 within 10 s after SIGTERM."""
    config = create(mortal, "waiting")
    config["kafka"] = {"bootstrap.servers": "127.0.0.1:1"}

    with Winnow(config, tmp_path) as service:
        service.wait_for("waiting for Kafka")

        assert 0 == service.stop()


@BOTH_GUARANTEES
def test_a_broker_that_is_killed(mortal: Broker, tmp_path: Path, guarantee: Guarantee) -> None:
    """A broker is killed while data flow and comes back: the service recovers; nothing is lost, and nothing doubled that must not be."""
    name = f"killed-{guarantee.value}"
    config = create(mortal, name) | {"delivery.guarantee": guarantee.value}
    sink = f"{name}.clean"

    with Feeder(mortal.bootstrap, f"{name}.raw", PARTITIONS) as feeder, Winnow(config, tmp_path) as service:
        until(lambda: len(read(mortal.bootstrap, sink)) > 2_000, what="a flow")
        mortal.kill()
        mortal.start()
        seen = len(read(mortal.bootstrap, sink, RECOVERY_SECONDS))
        until(
            lambda: len(read(mortal.bootstrap, sink, RECOVERY_SECONDS)) > seen + 2_000, RECOVERY_SECONDS, "a new flow"
        )
        feeder.stop()
        until(lambda: lag(mortal, name) == 0, RECOVERY_SECONDS, "the end")
        code = service.stop()

    assert 0 == code
    found = by_partition(read(mortal.bootstrap, sink))
    if guarantee is Guarantee.EXACTLY_ONCE:
        assert sequence(feeder.written) == found
    else:
        assert {p: set(lines) for p, lines in sequence(feeder.written).items()} == {p: set(v) for p, v in found.items()}


def lag(broker: Broker, group: str) -> int:
    """Count what the group has not committed yet."""
    known = independent.committed(broker.bootstrap, group, f"{group}.raw")
    return sum(end - known.get(place, 0) for place, end in independent.ends(broker.bootstrap, f"{group}.raw").items())
