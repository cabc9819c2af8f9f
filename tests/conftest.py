"""Fixtures for all tests: one real Kafka for the whole session, started by the first test that needs it."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import uuid
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Protocol

import hypothesis
import pytest
import structlog
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from xdist import remote

from app.embedded.broker import Broker, Cluster
from app.watchdog import Watchdog
from tests.support.java import quick_java
from tests.support.stages import Stages
from tests.support.streams import Streams
from tests.support.waiting import PATIENCE, without

# No limits of time: durations mean nothing on a busy machine. And the same examples in each run, so that no change is
# refused for what another one brought: `make fuzz` looks for new ones.
hypothesis.settings.register_profile(
    "winnow", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], derandomize=True
)
hypothesis.settings.load_profile("winnow")
# The asserts of these modules explain themselves, too.
pytest.register_assert_rewrite("tests.integration", "tests.upgrade")

# A worker whose task stands still for half a minute exits. Here that would be the process of the tests.
Watchdog.__init__.__defaults__ = (PATIENCE,)

QUICK_JAVA = quick_java()
STEADY = {"broker.session.timeout.ms": "60000"}
"""What keeps a broker that no test harms: it stays its partitions' leader on a machine too busy for its heartbeats."""
ORDER = ("containers", "neighbours", "schedules", "unit", "deploy", "integration/three_nodes", "integration")
"""The test folders in order: the image first, because its one stream takes minutes, then the quick ones."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for a random order and for the long run."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run modules, and the tests of each, in random order")
    parser.addoption("--long", action="store_true", help="every service on Spark, outages and kills in full length")


def pytest_configure(config: pytest.Config) -> None:
    """Report progress from the process that prints."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stages(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the folders in their order, however pytest was called, or everything in random order."""
    if (seed := config.getoption("shuffle")) is not None:
        dice = random.Random(seed)
        of_module = {item.path: dice.random() for item in items}
        items.sort(key=lambda item: (of_module[item.path], dice.random()))
        return
    places = {Path(__file__).parent / folder: place for place, folder in enumerate(ORDER)}
    items.sort(key=lambda item: min((places[each] for each in item.path.parents if each in places), default=len(ORDER)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: remote.Producer) -> Streams:
    """Run the modules that share servers in one stream per folder."""
    return Streams(config, log)


def pytest_collection_finish() -> None:
    """Exempt what lives as long as the session from garbage collection, which runs after many tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_of_the_process_outlives_its_test() -> Iterator[None]:
    """Disarm a watchdog that a test left armed, and reset logging that a command configured."""
    yield
    faulthandler.cancel_dump_traceback_later()
    structlog.reset_defaults()


class Topics(Protocol):
    """Creates a topic for one test and returns its name."""

    def __call__(
        self, role: str, partitions: int = 1, config: Mapping[str, str] | None = None, at: Cluster | None = None
    ) -> str:
        """Create the topic, by default on the session's cluster. Its name contains the test and the role."""
        ...


@pytest.fixture(scope="session")
def broker() -> Iterator[Cluster]:
    """Return the session's Kafka: the one in TEST_KAFKA_BROKER, or an embedded one."""
    bootstrap = os.environ.get("TEST_KAFKA_BROKER")
    with nullcontext(Cluster(bootstrap)) if bootstrap else Broker(properties=STEADY, java=QUICK_JAVA) as cluster:
        wait_for_coordinators(cluster)
        yield cluster


def wait_for_coordinators(cluster: Cluster) -> None:
    """
    Ask about groups, and open a transactional producer: Kafka makes their topics only then.

    Beside load that takes longer than a command waits.
    """
    admin = cluster.admin()  # made within a test, this client would count as left by it
    without(KafkaException, partial(_ask_coordinators, admin), "the coordinators of groups")
    without(KafkaException, partial(_open_producer, cluster.bootstrap), "the coordinators of transactions")


def _ask_coordinators(admin: AdminClient) -> None:
    for described in admin.describe_consumer_groups([f"nobody-{number}" for number in range(50)]).values():
        described.result()


def _open_producer(bootstrap: str) -> None:
    # Some brokers of these tests allow no longer transactions.
    own: dict[str, str | int] = {"transactional.id": "nobody", "transaction.timeout.ms": 30_000, "log_level": 0}
    Producer({"bootstrap.servers": bootstrap, **own}).init_transactions(10)


@pytest.fixture
def topics(broker: Cluster, request: pytest.FixtureRequest) -> Topics:
    """Return a function that creates topics for this test alone."""
    test = "".join(each if each.isalnum() else "-" for each in request.node.name)[:60]

    def create(
        role: str, partitions: int = 1, config: Mapping[str, str] | None = None, at: Cluster | None = None
    ) -> str:
        return (at or broker).create_topic(f"{test}.{role}.{uuid.uuid4().hex[:8]}", partitions, config)

    return create
