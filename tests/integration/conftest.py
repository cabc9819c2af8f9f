"""Marks everything in this folder as an integration test, and starts a second cluster once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.embedded.broker import Broker
from app.runtime import Runtime, Timings
from app.start import clients
from tests.conftest import QUICK_JAVA, STEADY, wait_for_coordinators
from tests.integration.in_process import ALONE
from tests.integration.secured import SecuredBroker
from tests.integration.service import Winnow
from tests.support.leftovers import _nothing_is_left_running
from tests.support.waiting import PATIENCE

__all__ = ["_nothing_is_left_running"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark only the tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(autouse=True, scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Return whether this is `make faults`: services run on Spark, and outages and kills have their full length."""
    Winnow.on_spark = bool(request.config.getoption("long"))
    return Winnow.on_spark


@pytest.fixture(scope="session")
def second() -> Iterator[Broker]:
    """Return a second cluster."""
    with Broker(properties=STEADY, java=QUICK_JAVA) as broker:
        wait_for_coordinators(broker)
        yield broker


@pytest.fixture
def brief_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands look for a running service only for a moment; use it where none runs."""
    monkeypatch.setattr("app.start.clients", lambda config, runtime=ALONE: clients(config, runtime))


@pytest.fixture
def long_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands look for a running service for longer: on a busy machine its commits are late, and so is its start."""
    long = Runtime(timings=Timings(sign_of_life=10.0, start=PATIENCE))
    monkeypatch.setattr("app.start.clients", lambda config, runtime=long: clients(config, runtime))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a fence and a commit take long; usually a fence gives up, and a slow commit costs a task its producer."""
    for limit in ("fence.FENCE_SECONDS", "writers.COMMIT_SECONDS", "writers.SENT_AGAIN_SECONDS"):
        monkeypatch.setattr(f"app.kafka.{limit}", PATIENCE)


@pytest.fixture(params=["one cluster", "two clusters"])
def centre(request: pytest.FixtureRequest) -> Broker | None:
    """Return the cluster of the sink, the dead letters and the offsets; None if it is the source's."""
    return request.getfixturevalue("second") if request.param == "two clusters" else None


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Return the broker and its token server."""
    broker = SecuredBroker(tmp_path_factory.mktemp("secured"), STEADY)
    with broker.tokens, broker:
        yield broker
