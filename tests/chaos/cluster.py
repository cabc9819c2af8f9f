"""
The system under test: Kafka, Spark and the service on loopback, as processes that can be killed one by one.

The service and its workers reach Kafka through proxies; the harness itself speaks to the brokers directly.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.broker import Broker, Cluster, free_ports
from app.model import Partition, transactional_id
from tests.chaos.history import Recorder
from tests.chaos.proxy import Ending, Proxy
from tests.chaos.work import AT_LEAST_ONCE
from tests.independent import client
from tests.integration.service import Winnow, settings, working
from tests.standalone import StandaloneSpark

ROOT = Path(__file__).parents[2]
TRANSACTION_SECONDS = 12
COORDINATORS = 5
"""Partitions of each of Kafka's internal topics; `app.embedded.broker` sets them."""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)
"""Brokers that are killed again and again must not spend the processors on optimising compilation."""


@dataclass(frozen=True)
class Size:
    """How large the system is."""

    brokers: int = 3
    workers: int = 3
    partitions: int = 6
    """Of the source and the sink."""


SMALL = Size(brokers=1, workers=0, partitions=4)
"""One broker, and two slots inside the driver instead of a Spark cluster."""


class ProxiedBroker(Broker):
    """Brokers with a second listener, which advertises the ports of the proxy."""

    def __init__(self, nodes: int) -> None:
        """Choose the ports."""
        super().__init__(nodes, java=SHORT_LIVED)
        ports = list(free_ports(2 * nodes))
        self._inner, self.outer = ports[:nodes], ports[nodes:]
        self.routes = dict(zip(self.outer, self._inner, strict=True))

    def _server_properties(self, node: int) -> dict[str, str]:
        usual = super()._server_properties(node)
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT"
        return usual | {
            "listeners": f"{usual['listeners']},PROXIED://127.0.0.1:{self._inner[node - 1]}",
            "advertised.listeners": f"{usual['advertised.listeners']},PROXIED://127.0.0.1:{self.outer[node - 1]}",
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "PLAINTEXT",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        }

    @property
    def nodes(self) -> list[int]:
        """The ids of all nodes."""
        return self._nodes(None)

    @property
    def running(self) -> list[int]:
        """The ids of the running nodes."""
        return sorted(node for node, process in self._processes.items() if process.poll() is None)

    def process(self, node: int) -> psutil.Process:
        """Return the JVM of a node."""
        (server,) = psutil.Process(self._processes[node].pid).children()
        return server

    @property
    def in_sync(self) -> bool:
        """
        Whether each node answers and reports every replica of every partition in sync: then the next fault may follow.

        Each node is asked separately, because for some seconds the others do not notice that one is down.
        """
        return all(map(_sees_all_in_sync, self.bootstrap.split(",")))

    def coordinator(self, topic: str, name: str) -> int:
        """Return the coordinator of a transactional id or a group, from the leader of its partition of an internal topic."""
        partition = (_java_hash(name) & 0x7FFFFFFF) % COORDINATORS
        known = client(self.bootstrap).list_topics(topic, timeout=30).topics[topic].partitions
        return known[partition].leader


def _sees_all_in_sync(server: str) -> bool:
    try:
        topics = Cluster(server).admin().list_topics(timeout=2).topics.values()
    except KafkaException:
        return False
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    return all(len(partition.isrs) == len(partition.replicas) for partition in partitions)


def _java_hash(text: str) -> int:
    """Return Java's String.hashCode."""
    total = 0
    for character in text:
        total = (31 * total + ord(character)) & 0xFFFFFFFF
    return total


class Driver(Winnow):
    """The service, started by `tests.chaos.service`; the history gets what it logs from `warning` up."""

    def __init__(self, config: dict[str, Any], folder: Path, arm: str, points: Path, recorder: Recorder) -> None:
        """Prepare; nothing starts yet."""
        super().__init__(config, folder, environment={"PYTHONPATH": str(ROOT)})
        self.file = self._command[self._command.index("-c") + 1]
        self._command = [sys.executable, "-m", "tests.chaos.service", self.file, arm, str(points)]
        self._recorder, self._recorded = recorder, 0

    def record_log(self) -> None:
        """Record what it has logged since the last call."""
        with self._news:
            news, self._recorded = self.events[self._recorded :], len(self.events)
        for event in news:
            if event["level"] != "info" or event["event"] in ("round", "stopped", "partition recovered"):
                self._recorder.record("said", **{f"service_{key}": value for key, value in event.items()})

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the driver alone, by SIGKILL: the processes it started must end by themselves."""
        self._remember_tree()
        self._process.kill()
        self._process.wait()


class System:
    """
    Brokers, proxies, Spark and drivers; a context manager that leaves no process behind.

    Args:
        size: how many brokers, Spark workers and partitions.
        folder: for logs, configurations and failpoints.
        arm: which clients the workers use; see `tests.chaos.work`.
        name: the group, and the prefix of the topics.
        recorder: gets faults and logs.
    """

    def __init__(self, size: Size, folder: Path, arm: str, name: str, recorder: Recorder) -> None:
        """Prepare; nothing starts yet."""
        self.size, self.arm, self.name, self.folder = size, arm, name, folder
        self.recorder = recorder
        self.points = folder / "points"
        self.points.mkdir(parents=True)
        self.broker = ProxiedBroker(size.brokers)
        self.spark = StandaloneSpark(folder, workers=size.workers) if size.workers else None
        self.proxy = Proxy(self.broker.routes, self._note_held)
        self.partitions = size.partitions
        self.drivers: list[Driver] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start Kafka and Spark in parallel, create the topics, start the service."""
        with self._stack, ThreadPoolExecutor(2) as threads:
            parts = [self.broker, self.proxy, *([self.spark] if self.spark else [])]
            for _ in threads.map(self._stack.enter_context, parts):
                pass
            for topic in (self.source, *self.roles.values()):
                self.broker.create_topic(topic, self.size.partitions, self._durable, replication=self.size.brokers)
            assert until(self._known_everywhere, 30), "a broker does not know the topics"
            self._stack.callback(self._end_drivers)
            self.start_driver()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self._stack.close()

    def _known_everywhere(self) -> bool:
        """Return whether each broker knows all topics; a new topic reaches them one after the other."""
        wanted = {self.source, *self.roles.values()}
        admins = [Cluster(server).admin() for server in self.broker.bootstrap.split(",")]  # one for each broker
        known = [admin.list_topics(timeout=10).topics for admin in admins]
        return all(wanted <= topics.keys() for topics in known)

    @property
    def _durable(self) -> dict[str, str]:
        return {"min.insync.replicas": "2"} if self.size.brokers > 1 else {}

    @property
    def source(self) -> str:
        """The source topic."""
        return f"{self.name}.raw"

    @property
    def roles(self) -> dict[str, str]:
        """The topics that the service writes to, by role."""
        return {"sink": f"{self.name}.clean", "dead": f"{self.name}.dead"}

    @property
    def driver(self) -> Driver:
        """The driver that was started last."""
        return self.drivers[-1]

    def start_driver(self, **spark: object) -> Driver:
        """Start a driver, with additional Spark settings, and return it."""
        config = settings(
            ",".join(f"127.0.0.1:{port}" for port in self.broker.outer),
            group=self.name,
            sources=[self.source],
            sink=self.roles["sink"],
            dead=self.roles["dead"],
            round_interval="10s",
            transaction_timeout=f"{TRANSACTION_SECONDS}s",
        )
        config["delivery.guarantee"] = AT_LEAST_ONCE if self.arm == AT_LEAST_ONCE else "exactly-once"
        config["spark"] |= self._spark_settings() | spark
        driver = Driver(config, self.folder, self.arm, self.points, self.recorder)
        driver.__enter__()
        self.drivers.append(driver)
        return driver

    def _spark_settings(self) -> dict[str, object]:
        python: dict[str, object] = {"spark.executorEnv.PYTHONPATH": str(ROOT)}
        if self.spark is None:
            return python
        return python | {
            "spark.master": self.spark.url,
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            # The driver gives up a stopped executor after 20 s rather than 120 s.
            "spark.network.timeout": "20s",
            "spark.network.timeoutInterval": "5s",
            "spark.executor.heartbeatInterval": "2s",
        }

    def end_driver(self, driver: Driver) -> None:
        """Remove a driver that has ended, and kill what is left of its processes."""
        driver.record_log()
        self.recorder.record("driver ended", noise=driver.noise[-10:])
        driver.__exit__(None, None, None)
        self.drivers.remove(driver)

    def _end_drivers(self) -> None:
        for driver in list(self.drivers):
            self.end_driver(driver)

    @property
    def executors(self) -> list[psutil.Process]:
        """The JVMs of the executors."""
        if self.spark is None:
            return []
        found: list[psutil.Process] = []
        for number in range(self.size.workers):
            with contextlib.suppress(psutil.NoSuchProcess, ValueError, KeyError):  # being killed or started now
                below = self.spark.process(f"worker-{number}").children()
                found += [process for process in below if "java" in process.name()]
        return found

    @property
    def workers(self) -> list[psutil.Process]:
        """The Python workers that run a task."""
        roots = self.executors if self.spark else [psutil.Process(each.pid) for each in self.drivers if each.alive]
        return [worker for root in roots for worker in working(root)]

    def add_partitions(self, more: int) -> int:
        """Add partitions to the source topic; return how many it has now."""
        wanted = [NewPartitions(self.source, self.partitions + more)]
        client(self.broker.bootstrap).create_partitions(wanted)[self.source].result(30)
        self.partitions += more
        return self.partitions

    def transaction_coordinator(self, partition: int) -> int:
        """Return the node that coordinates the transactions for a source partition."""
        name = transactional_id(self.name, Partition(self.source, partition))
        return self.broker.coordinator("__transaction_state", name)

    def group_coordinator(self) -> int:
        """Return the node that coordinates the group."""
        return self.broker.coordinator("__consumer_offsets", self.name)

    def state(self) -> dict[str, object]:
        """Return how many processes of each kind run, for the history."""
        return {
            "drivers": len([each for each in self.drivers if each.alive]),
            "executors": len(self.executors),
            "busy": len(self.workers),
            "brokers": self.broker.running,
        }

    def _note_held(self, request: Ending, seconds: float) -> None:
        self.recorder.record("held", **request._asdict(), seconds=round(seconds, 3))


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """Stop a process by SIGSTOP for the length of the block."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)


def kill(process: psutil.Process) -> None:
    """Kill a process, unless it has ended by itself, and wait until it is dead."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
    psutil.wait_procs([process], 10)


def until(condition: Callable[[], object], seconds: float) -> bool:
    """Wait for a condition; return whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
