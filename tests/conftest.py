"""Fixtures for all tests: one real Kafka for the whole session, started by the first test that needs it."""

from __future__ import annotations

import faulthandler
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import hypothesis
import pytest
import structlog
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from app.embedded.broker import Broker, Cluster

# No deadline for an example: on a busy machine its duration means nothing.
hypothesis.settings.register_profile("winnow", deadline=None)
hypothesis.settings.load_profile("winnow")


QUICK_JAVA = ("-XX:TieredStopAtLevel=1",)
"""For a broker that lives for minutes: optimising its code takes more time than it saves."""
ORDER = ("unit", "deploy", "containers", "integration")
"""The test folders, quick ones first, so that a simple mistake shows before a broker starts."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the folders in their order, however pytest was called."""
    places = {Path(__file__).with_name(folder): place for place, folder in enumerate(ORDER)}
    items.sort(key=lambda item: min((places[each] for each in item.path.parents if each in places), default=len(ORDER)))


class OneImage(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives all tests of the image to one worker, which builds it once, and any other test to whichever is free."""

    # Not by xdist's own mark for groups: it does nothing with pytest 9.2, which keeps the ids of tests elsewhere.
    def _split_scope(self, nodeid: str) -> str:
        return "image" if nodeid.startswith("tests/containers/") else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer | None) -> OneImage:
    """Schedule like that where there are several workers."""
    return OneImage(config, log)


@pytest.fixture(autouse=True)
def _nothing_of_the_process_outlives_its_test() -> Iterator[None]:
    """Disarm a watchdog that a test has fed and not left; forget a log that a command has set up for its own level."""
    yield
    faulthandler.cancel_dump_traceback_later()
    structlog.reset_defaults()


class Topics(Protocol):
    """Creates a topic for one test, and returns its name."""

    def __call__(
        self, role: str, partitions: int = 1, config: Mapping[str, str] | None = None, at: Cluster | None = None
    ) -> str:
        """Create the topic, on another cluster where one is given; its name holds the test and the role."""
        ...


@pytest.fixture(scope="session")
def broker() -> Iterator[Cluster]:
    """Return the Kafka of the session: the one TEST_KAFKA_BROKER names, or an embedded one."""
    if bootstrap := os.environ.get("TEST_KAFKA_BROKER"):
        yield Cluster(bootstrap)
        return
    with Broker(java=QUICK_JAVA) as embedded:
        yield embedded


@pytest.fixture
def topics(broker: Cluster, request: pytest.FixtureRequest) -> Topics:
    """Return a function that creates topics for this test alone."""
    test = "".join(each if each.isalnum() else "-" for each in request.node.name)[:60]

    def create(
        role: str, partitions: int = 1, config: Mapping[str, str] | None = None, at: Cluster | None = None
    ) -> str:
        return (at or broker).create_topic(f"{test}.{role}.{uuid.uuid4().hex[:8]}", partitions, config)

    return create
