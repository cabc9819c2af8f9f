"""The service as a process: its code, its log, its last words."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from tests.chaos.history import Recorder
from tests.integration.service import WinnowOnSpark
from tests.support.spark import quick_spark

ROOT = Path(__file__).parents[2]
REBALANCE = "rebalance"
WORTH_KEEPING = ("round", REBALANCE, "stopped", "partition_recovered", "partition_unblocked")
"""What the history gets of the log below `warning`."""
LISTEN_SECONDS = 0.25
FORKS = "forks"
"""The `spark.master` by which `tests.chaos.service` forks a process for each task, as the tests do, and starts no Spark."""


def heap_log(folder: Path, pid: int | str) -> Path:
    """Return where the JVM of a driver writes what its collections leave of the heap."""
    return folder / f"gc-{pid}.log"


def lay_out(product: Path, folder: Path) -> Path:
    """Return a folder in which `app` and `parsers` are those of a checkout of the product, and `tests` are ours."""
    code = folder / "code"
    code.mkdir(parents=True)
    for name, root in (("app", product), ("parsers", product), ("tests", ROOT)):
        (code / name).symlink_to(root / name)
    return code


class Launch(NamedTuple):
    """
    What drivers are started with.

    Args:
        folder: the folder for configuration files.
        code: the folder that `app`, `parsers` and `tests` are imported from.
        arm: which service it is; see `tests.chaos.arms`.
        points: the folder of the failpoints.
        recorder: gets the log.
        forked: whether tasks run in forked processes rather than on Spark.
        environment: further environment variables.
    """

    folder: Path
    code: Path
    arm: str
    points: Path
    recorder: Recorder
    forked: bool = False
    environment: Mapping[str, str] = MappingProxyType({})


class Driver(WinnowOnSpark):
    """
    The service, started by `tests.chaos.service`; the history gets what it logs from `warning` up.

    Args:
        config: the content of its configuration file.
        launch: how to start it.
    """

    def __init__(self, config: Mapping[str, Any], launch: Launch) -> None:
        """Prepare; nothing starts yet."""
        folder, code, arm, points, recorder, forked, more = launch
        if forked:
            config = {**config, "spark": {**config["spark"], "spark.master": FORKS}}
        # Without PYTHONSAFEPATH, `python -m` would import from the working folder first.
        java = f"{quick_spark()['SPARK_SUBMIT_OPTS']} -Xlog:gc:file={heap_log(folder, '%p')}"
        own = {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1", "SPARK_SUBMIT_OPTS": java}
        super().__init__(config, folder, environment={**own, **more})
        _, _, self.file = self._arguments
        self._as = arm, str(points)
        self._recorder, self._recorded = recorder, 0
        self._recording = threading.Lock()
        self._over = threading.Event()
        self._scribe = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        """Start, and record what it logs."""
        super().__enter__()
        self._scribe.start()
        return self

    @property
    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.chaos.service", self.file, *self._as]

    def _follow(self) -> None:
        while not self._over.wait(LISTEN_SECONDS):
            self.record_log()

    def record_log(self) -> None:
        """Record what it has logged since the last call."""
        with self._recording:
            with self._lock:
                news, self._recorded = self.events[self._recorded :], len(self.events)
            for event in news:
                if event["level"] != "info" or event["event"] in WORTH_KEEPING:
                    self._recorder.record("said", **{f"service_{key}": value for key, value in event.items()})

    def record_end(self, *, by_itself: bool) -> None:
        """Record everything that is left of its log, and how it ended; no line more is recorded afterwards."""
        self._listener.join(5)
        self._over.set()
        self.record_log()
        Path(self.file).with_suffix(".stderr").write_text("\n".join(self.noise))
        words = self.last_words
        if by_itself and words:
            self._recorder.record("said", service_event="ended", service_error=words)
        if by_itself and not words:
            self._recorder.record(
                "seen", anomaly="crashed", what=f"exit code {self._process.poll()}: {self.noise[-3:]}"
            )
        self._recorder.record("driver ended", code=self._process.poll(), noise=self.noise[-10:])

    @property
    def last_words(self) -> str:
        """The line by which it says why it ends; empty if there is none."""
        return next((line for line in reversed(self.noise) if line.startswith(("winnow: ", "configuration: "))), "")

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def terminate(self) -> int:
        """Send SIGTERM and wait for the end; return the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.code()

    def kill(self) -> None:
        """Kill the driver alone, by SIGKILL: the processes it started must end by themselves."""
        self._remember_tree()
        self._process.kill()
        self._process.wait()
