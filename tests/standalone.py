"""A real Spark standalone cluster on loopback, from the product's PySpark wheel, with a process for each role."""

from __future__ import annotations

import os
import time
import urllib.request
from itertools import chain
from pathlib import Path

import psutil

from app.embedded.broker import HeldPorts
from app.embedded.jars import find_java
from app.embedded.process import ManagedProcess, Startable
from tests.support.spark import JARS, jvms
from tests.support.waiting import PATIENCE, end

# The options that Spark's launcher adds for Java 17 and later.
OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util", "sun.nio.ch")
]


class StandaloneSpark(Startable):
    """
    One master, and workers with one core each. A context manager that leaves no process behind.

    Args:
        folder: for logs and the workers' files.
        workers: the number of workers.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        """Choose the ports without starting."""
        self._folder = folder
        self._port, self._ui, *_ = self._ports = ports = HeldPorts(2 + 2 * workers)
        self._worker_ports = list(zip(ports[2::2], ports[3::2], strict=True))
        self._processes: dict[str, ManagedProcess] = {}
        self.url = f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start everything and wait until the master knows all workers."""
        self.start_master()
        self._await_state(workers=0)  # a worker that starts before its master retries only after 7 s
        for number in range(len(self._worker_ports)):
            self.start_worker(number)
        self._await_state(workers=len(self._worker_ports))

    def start_master(self) -> None:
        """Start the master."""
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._ui)]
        self._launch("master", "org.apache.spark.deploy.master.Master", *where)

    def start_worker(self, number: int) -> None:
        """Start a worker."""
        port, ui = self._worker_ports[number]
        where = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui)]
        size = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"worker-{number}")]
        self._launch(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *where, *size, self.url)

    def _launch(self, name: str, role: str, *arguments: str) -> None:
        server = [
            find_java(),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *OPENS,
            "-cp",
            f"{JARS}/*",
            role,
            *arguments,
        ]
        environment = {"SPARK_HOME": str(JARS.parent), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
        self._processes[name] = ManagedProcess(
            server, self._folder / f"{name}.log", environment={**os.environ, **environment}
        )

    def process(self, name: str) -> psutil.Process:
        """Return the JVM of `master` or `worker-N`."""
        (server,) = psutil.Process(self._processes[name].pid).children()
        return server

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs that run tasks, in the order of their workers."""
        below = [self.process(f"worker-{number}").children() for number in range(len(self._worker_ports))]
        return list(jvms(chain.from_iterable(below)))

    def _await_state(self, workers: int) -> None:
        """Wait until the master's page shows it and this many workers as alive."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._ui}/json/", timeout=2) as page:
                    if page.read().count(b'"ALIVE"') == 1 + workers:
                        return
            except OSError:
                time.sleep(0.1)
        logs = "\n".join(log.read_text(errors="replace")[-2_000:] for log in sorted(self._folder.glob("*.log")))
        raise AssertionError(f"Spark's master did not find {workers} workers within {PATIENCE:.0f} s:\n{logs}")

    def close(self) -> None:
        """End all processes. Executors end with their workers."""
        executors = [
            each for name in self._processes for each in psutil.Process(self._processes[name].pid).children(True)
        ]
        for process in self._processes.values():
            process.stop_and_wait(at_once=True)
        end(executors)
