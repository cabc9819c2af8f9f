"""The progress of a whole test run: each stage when it begins, and how long it took last time."""

from __future__ import annotations

import time

import pytest

STAGES = {
    "tests/unit/": "unit tests: no JVM, no broker",
    "tests/schedules/": "simulated schedules: the service on a model of Kafka",
    "tests/deploy/": "what is deployed: chart, manifests, alerts, release",
    "tests/containers/": "the image: built and run by a container engine, or by Debian's tools",
    "tests/neighbours/": "another program on its own PySpark, beside the offset listener",
    "tests/integration/": "integration tests: real Kafka, offset stores and Spark",
}
LAST = "winnow/stages"


class Stages:
    """
    Prints a line when the first test of a stage begins, and stores each stage's duration in pytest's cache.

    Args:
        config: of the process that prints, not of a worker.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cache: pytest.Cache | None = getattr(config, "cache", None)  # missing with `-p no:cacheprovider`
        self._last: dict[str, float] = self._cache.get(LAST, {}) if self._cache else {}
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Announce the stage of its first test."""
        for folder, what in STAGES.items():
            if nodeid.startswith(folder) and folder not in self._began:
                self._began[folder] = time.monotonic()
                last = f"took {self._last[folder]:.0f} s last time" if folder in self._last else "no earlier run here"
                if printer := self._config.pluginmanager.get_plugin("terminalreporter"):
                    printer.write_line(f"\n{what} ({last})", bold=True)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Remember when the stage's last test ended."""
        for folder in self._began:
            if nodeid.startswith(folder):
                self._ended[folder] = time.monotonic()

    def pytest_sessionfinish(self) -> None:
        """Store how long each stage took. Stages of a run with several streams overlap a little."""
        took = {folder: ended - self._began[folder] for folder, ended in self._ended.items()}
        if self._cache:
            self._cache.set(LAST, self._last | took)
