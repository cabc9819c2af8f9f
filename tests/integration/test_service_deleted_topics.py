"""Topics are deleted under a running service, on a broker that creates topics on demand: none reappears."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.embedded.broker import Broker
from tests.conftest import QUICK_JAVA, STEADY
from tests.independent import Feeder, read
from tests.integration.service import Winnow, settings
from tests.support.waiting import PATIENCE, until

PARTITIONS = 3
ROLES = ("raw", "clean", "dead")


@pytest.fixture(scope="module")
def eager() -> Iterator[Broker]:
    """Return a broker that creates every topic on request."""
    with Broker(properties={"auto.create.topics.enable": "true", **STEADY}, java=QUICK_JAVA) as broker:
        yield broker


def existing(broker: Broker) -> set[str]:
    """Return the existing topics without requesting any by name."""
    return set(broker.admin().list_topics(timeout=PATIENCE).topics)


def delete(broker: Broker, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin = broker.admin()
    admin.delete_topics([topic])[topic].result(PATIENCE)
    until(lambda: topic not in existing(broker), "the end of the topic")


def test_a_deleted_topic_does_not_come_back(eager: Broker, tmp_path: Path) -> None:
    """Without sink or dead letters the service ends and says why. Without its source it waits for an operator."""
    with contextlib.ExitStack() as stack:
        services = {}
        for lost in ROLES:  # side by side, because most of a start is waiting
            raw, clean, dead = (eager.create_topic(f"{lost}-lost.{role}", PARTITIONS) for role in ROLES)
            config = settings(eager.bootstrap, group=lost, sources=[raw], sink=clean, dead=dead)
            services[lost] = stack.enter_context(Winnow(config, tmp_path))
            feeder = stack.enter_context(Feeder(eager.bootstrap, raw, PARTITIONS, 300))
            until(lambda: read(eager.bootstrap, clean), "a flow")  # noqa: B023  # called here
            feeder.stop()  # its producer, unlike ours, would create the topic again
            delete(eager, f"{lost}-lost.{lost}")

        blocked = services["raw"].wait_for("partition_blocked", times=PARTITIONS)
        codes = [services[lost].code() for lost in ("clean", "dead")]
        said = ["\n".join(services[lost].noise) for lost in ("clean", "dead")]
        stopped = services["raw"].stop()

    assert [3, 3] == codes
    assert all(
        f"topic '{lost}-lost.{lost}' does not exist" in text for lost, text in zip(("clean", "dead"), said, strict=True)
    )
    assert "its topic no longer exists" in blocked["error"]
    assert 0 == stopped
    assert not {f"{lost}-lost.{lost}" for lost in ROLES} & existing(eager)
