"""Fixtures for all tests: one real Kafka for the whole session, started by the first test that needs it."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import hypothesis
import pytest
import structlog
from xdist.remote import Producer

from app.embedded.broker import Broker, Cluster
from tests.support.java import quick_java
from tests.support.stages import Stages
from tests.support.streams import Streams

# No deadline for an example: on a busy machine its duration means nothing.
hypothesis.settings.register_profile("winnow", deadline=None)
hypothesis.settings.load_profile("winnow")


QUICK_JAVA = quick_java()
ORDER = ("containers", "neighbours", "unit", "deploy", "integration/three_nodes", "integration")
"""The test folders: the image, which takes one stream of tests some minutes, and beside it the quick ones first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run take the tests in another order, or the long way."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run modules, and the tests of each, in random order")
    parser.addoption("--long", action="store_true", help="every service on Spark, outages and kills in full length")


def pytest_configure(config: pytest.Config) -> None:
    """Let the process that prints say what is done."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stages(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the folders in their order, however pytest was called; or everything in a random one."""
    if (seed := config.getoption("shuffle")) is not None:
        dice = random.Random(seed)
        of_module = {item.path: dice.random() for item in items}
        items.sort(key=lambda item: (of_module[item.path], dice.random()))
        return
    places = {Path(__file__).parent / folder: place for place, folder in enumerate(ORDER)}
    items.sort(key=lambda item: min((places[each] for each in item.path.parents if each in places), default=len(ORDER)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Streams:
    """Let the modules of a folder that share servers run in one stream."""
    return Streams(config, log)


def pytest_collection_finish() -> None:
    """Let the collector of garbage leave alone what lives as long as the tests: it runs after many of them."""
    gc.collect()
    gc.freeze()


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
