"""A second service beside the one that is checked, for harm to topics and configurations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Self

from tests.chaos import commands
from tests.chaos.cluster import System, until
from tests.chaos.driver import Driver
from tests.chaos.harm.base import PATIENCE, PROGRESS_SECONDS
from tests.chaos.lines import bad_line
from tests.chaos.load import fresh_name
from tests.independent import Written, cleansed, commit, committed, ends, line, produce, read

PARTITIONS = 2
LINES = 100
AWAY_SECONDS = 30.0
"""For how long a deleted topic must not come back."""
LOOK_SECONDS = 0.5
START_SECONDS = 300.0
"""On a busy machine, a second driver needs minutes to start."""


class Aside:
    """
    A second service with a group and topics of its own: deleting them cannot affect the lines that are checked.

    It has two source topics, `raw` and `more`.

    Args:
        system: the brokers, and the service that is checked.
        nodes: for topics that must lie somewhere, by role: the nodes of each partition.
        **settings: settings of topics, by role.
    """

    def __init__(
        self,
        system: System,
        nodes: Mapping[str, Sequence[tuple[int, ...]]] = MappingProxyType({}),
        **settings: Mapping[str, str],
    ) -> None:
        """Create the topics, and prepare; nothing starts yet."""
        self._system, self._nodes, self._settings = system, nodes, settings
        self._name = fresh_name()
        self._points = system.folder / f"points-{self._name}"
        self._points.mkdir()
        self.topics = {role: f"{self._name}.{role}" for role in ("raw", "more", "clean", "dead")}
        self._written = 0
        self.config: dict[str, Any] = {}
        """Further configuration; may change before it starts again."""
        for role in self.topics:
            self._create(role)

    def __enter__(self) -> Self:
        """Start the service."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.end()

    def _create(self, role: str) -> None:
        topic, settings = self.topics[role], self._settings.get(role, {})
        if role in self._nodes:
            self._system.place(topic, self._nodes[role], settings)
        else:
            self._system.broker.create_topic(topic, PARTITIONS, settings, replication=self._system.size.brokers)

    def start(self) -> None:
        """Start the service with the present configuration."""
        topics = self.topics
        own = {
            "group.id": self._name,
            "source": {"topics": [topics["raw"], topics["more"]]},
            "sink": {"topic": topics["clean"]},
            "dead.letters": {"topic": topics["dead"]},
            "round.interval": "2s",
        }
        config = self._system.settings({"spark.master": "local[1]"}) | own | self.config
        self.driver = Driver(config, self._system.launch._replace(points=self._points))
        self.driver.__enter__()

    def end(self) -> None:
        """Kill it, unless it has ended by itself."""
        by_itself = not self.driver.alive
        self.driver.kill()
        self.driver.record_end(by_itself=by_itself)
        self.driver.__exit__(None, None, None)

    def write(self, *roles: str) -> None:
        """Write lines to source topics; every other one must be rejected."""
        for role in roles:
            numbers = range(self._written, self._written + LINES)
            rows = [Written(bad_line(0, n) if n % 2 else line(n), None, n // 2 % PARTITIONS) for n in numbers]
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

    def set_back(self, role: str) -> None:
        """Set the offsets of a source topic to its beginning, as a person may while the service is stopped."""
        commit(self._system.broker.bootstrap, self._name, {(self.topics[role], n): 0 for n in range(PARTITIONS)})

    def expect_each_line_once(self, *others: str) -> None:
        """Record each good line that is not in the sink, here or on other clusters, or is there twice."""
        found = Counter(
            each.value
            for where in (self._system.broker.bootstrap, *others)
            for each in read(where, self.topics["clean"])
        )
        for number in range(0, self._written, 2):
            times = found.pop(cleansed(number), 0)
            if times != 1:
                anomaly = "duplicated" if times else "lost"
                self._system.recorder.record("seen", anomaly=anomaly, what=f"line {number} of the service beside")
        for value in found:
            self._system.recorder.record("seen", anomaly="phantom", what=f"{value!r} of the service beside")

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

    def command(self, *arguments: str) -> commands.Answer:
        """Run a command of the product on the service's configuration."""
        return commands.run(self._system.code, self.driver.file, *arguments)

    def expect_it_rests(self, role: str) -> None:
        """Wait until it says that it is paused; record it if it takes records of a source topic instead."""
        before = self._done(role)
        until(
            lambda: self.driver.logged("paused") or self._done(role) > before,
            START_SECONDS,
        )
        if self._done(role) > before:
            self._system.recorder.record("seen", anomaly="not paused", what=f"the topic {role} is read")

    def _done(self, role: str) -> int:
        """Return how far the group has come in a source topic, all partitions together."""
        return sum(committed(self._system.broker.bootstrap, self._name, self.topics[role]).values())

    def recreate(self, role: str) -> None:
        """Create the topic as its owner would; the service is ended first, because it may come back meanwhile."""
        self.end()
        if self.exists(role):
            self.delete(role)
        self._create(role)
        self.start()
