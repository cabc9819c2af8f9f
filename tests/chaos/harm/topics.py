"""Deletes a topic while brokers create topics by themselves; what is deleted must stay so until its owner creates it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from tests.chaos.cluster import System, until
from tests.chaos.driver import Driver
from tests.chaos.harm.base import PATIENCE, PROGRESS_SECONDS, Harm
from tests.chaos.lines import bad_line
from tests.chaos.load import Load, fresh_name
from tests.independent import Written, committed, ends, line, produce

PARTITIONS = 2
LINES = 100
AWAY_SECONDS = 30.0
"""For how long a deleted topic must not come back."""
LOOK_SECONDS = 0.5
START_SECONDS = 300.0
"""On a machine that has too much to do, a second driver needs minutes."""


class Aside:
    """
    A second service with a group and topics of its own: to delete these does no harm to the lines that are checked.

    It has two source topics, `raw` and `more`.
    """

    def __init__(self, system: System) -> None:
        """Create the topics, and prepare; nothing starts yet."""
        self._system = system
        self._name = fresh_name()
        self._points = system.folder / f"points-{self._name}"
        self._points.mkdir()
        self.topics = {role: f"{self._name}.{role}" for role in ("raw", "more", "clean", "dead")}
        self._written = 0
        self._driver: Driver | None = None
        for topic in self.topics.values():
            self._create(topic)

    def __enter__(self) -> Self:
        """Start the service."""
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._end()

    def _create(self, topic: str) -> None:
        self._system.broker.create_topic(topic, PARTITIONS, replication=self._system.size.brokers)

    def _start(self) -> None:
        topics = self.topics
        own = {
            "group.id": self._name,
            "source": {"topics": [topics["raw"], topics["more"]]},
            "sink": {"topic": topics["clean"]},
            "dead.letters": {"topic": topics["dead"]},
            "round.interval": "2s",
        }
        config = self._system.settings({"spark.master": "local[1]"}) | own
        self._driver = Driver(config, self._system.launch._replace(points=self._points))
        self._driver.__enter__()

    def _end(self) -> None:
        assert self._driver is not None
        by_itself = not self._driver.alive
        self._driver.kill()
        self._driver.record_end(by_itself=by_itself)
        self._driver.__exit__(None, None, None)

    def write(self, *roles: str) -> None:
        """Write lines to source topics; every other one must be rejected."""
        for role in roles:
            numbers = range(self._written, self._written + LINES)
            rows = [Written(bad_line(0, n) if n % 2 else line(n), None, n % PARTITIONS) for n in numbers]
            produce(self._system.broker.bootstrap, self.topics[role], rows)
            self._written += LINES

    def await_start(self, *roles: str) -> None:
        """Wait until it has cleansed everything of these source topics; no harm has been done yet."""
        assert until(lambda: self._all_cleansed(roles), START_SECONDS), "the service beside has not begun"

    def expect_all_cleansed(self, *roles: str) -> None:
        """Wait until it has cleansed everything of these source topics; record it if that does not happen."""
        if roles and not until(lambda: self._all_cleansed(roles), PROGRESS_SECONDS):
            self._system.recorder.record("seen", anomaly="stuck", what=f"{roles} of the service beside")

    def _all_cleansed(self, roles: Sequence[str]) -> bool:
        where, topics = self._system.broker.bootstrap, [self.topics[role] for role in roles]
        offsets = committed(where, self._name, *topics)
        return all(offsets.get(place, 0) >= end for topic in topics for place, end in ends(where, topic).items())

    def delete(self, role: str) -> None:
        """Delete a topic, and wait until the brokers do not know it any more."""
        topic, admin = self.topics[role], self._system.broker.admin()
        admin.delete_topics([topic])[topic].result(30)
        until(lambda: not self.exists(role), PATIENCE)

    def exists(self, role: str) -> bool:
        """Return whether a topic exists; asks for all, because a question for one may create it."""
        return self.topics[role] in self._system.broker.admin().list_topics(timeout=30).topics

    def expect_it_stays_away(self, role: str) -> None:
        """Watch for a while; record it if the topic comes back, and delete it once more."""
        deadline = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < deadline:
            if self.exists(role):
                self._system.recorder.record("seen", anomaly="came back", what=f"the topic {role}")
                self.delete(role)
            time.sleep(LOOK_SECONDS)

    def command(self, *arguments: str) -> None:
        """Run a command of the product on the service's configuration."""
        assert self._driver is not None
        environment = {**os.environ, "PYTHONPATH": str(self._system.code), "PYTHONSAFEPATH": "1"}
        command = [sys.executable, "-m", "app.cli", *arguments, "-c", self._driver.file]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=PROGRESS_SECONDS)

    def expect_it_rests(self, role: str) -> None:
        """Wait until it says that it is paused; record it if it takes records of a source topic instead."""
        driver, before = self._driver, self._done(role)
        assert driver is not None
        until(
            lambda: any(each["event"] == "paused" for each in driver.events) or self._done(role) > before, START_SECONDS
        )
        if self._done(role) > before:
            self._system.recorder.record("seen", anomaly="not paused", what=f"the topic {role} is read")

    def _done(self, role: str) -> int:
        """Return how far the group has come in a source topic, all partitions together."""
        return sum(committed(self._system.broker.bootstrap, self._name, self.topics[role]).values())

    def recreate(self, role: str) -> None:
        """Create the topic as its owner would; the service is ended first, because it may come back meanwhile."""
        self._end()
        if self.exists(role):
            self.delete(role)
        self._create(self.topics[role])
        self._start()


def _deleted(role: str, still: tuple[str, ...]) -> Harm:
    """Delete a topic; meanwhile the source topics `still` must be cleansed, and in the end both."""

    @contextmanager
    def deleted(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        with Aside(system) as aside:
            aside.write("raw", "more")
            aside.await_start("raw", "more")
            aside.delete(role)
            yield role
            aside.write("raw")
            aside.expect_it_stays_away(role)
            aside.expect_all_cleansed(*still)
            aside.recreate(role)
            aside.write("raw", "more")
            aside.expect_all_cleansed("raw", "more")

    return deleted


@contextmanager
def deleted_while_paused(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Delete the dead letters of a paused service and create them again; it must go on only when a person resumes it."""
    with Aside(system) as aside:
        aside.write("raw")
        aside.await_start("raw")
        aside.command("pause")
        aside.recreate("dead")
        yield "dead"
        aside.write("raw")
        aside.expect_it_rests("raw")
        aside.command("resume")
        aside.expect_all_cleansed("raw")


source_deleted = _deleted("more", still=("raw",))
sink_deleted = _deleted("clean", still=())
dead_letters_deleted = _deleted("dead", still=())
