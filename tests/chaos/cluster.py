"""
The system under test: Kafka, Spark and the service on loopback, as processes that can be killed one by one.

The service and its workers reach Kafka through proxies; the harness itself speaks to the brokers directly.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

import psutil
from confluent_kafka.admin import NewPartitions, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.broker import Cluster
from app.model import Partition, transactional_id
from tests.chaos import commands
from tests.chaos.brokers import COORDINATORS, GROUPS, TRANSACTIONS, ScramBroker
from tests.chaos.clocks import DRIVER, WORKERS, Clocks
from tests.chaos.driver import ROOT, Driver, Launch, lay_out
from tests.chaos.history import Recorder
from tests.chaos.proxy import Packet, Proxy
from tests.chaos.work import AT_LEAST_ONCE
from tests.independent import client
from tests.integration.service import forked_workers, settings, working
from tests.standalone import StandaloneSpark
from tests.support.spark import jvms
from tests.support.waiting import alive_after, freeze

TRANSACTION_SECONDS = 12
KNOWN_SECONDS = 300.0
"""How long a broker on a busy machine may take to know what is new."""
FIRST_PASSWORD = "right"
FOR_EVER_MS = str((1 << 63) - 1)
LARGEST_BYTES = str(16 << 20)
NONE: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True)
class Size:
    """How large the system is."""

    brokers: int = 3
    workers: int = 3
    partitions: int = 6
    """Of the source and the sink."""
    forked: bool = False
    """Whether tasks run in forked processes rather than on Spark: for a machine that is too busy for that."""
    replicas: Mapping[str, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    """The nodes of each partition of `source`, `sink` or `dead`; by default each partition is on all nodes."""
    internal: tuple[int, ...] = ()
    """The nodes of the partitions of Kafka's internal topics; by default Kafka decides."""
    short_of_space: int | None = None
    """The node that has little space for its data."""
    kafka: str = ""
    """The version of the brokers; by default the product's own."""
    own_clocks: bool = False
    """Whether the clocks of the driver and of the workers can be set, which takes a C compiler."""


SMALL = Size(brokers=1, workers=0, partitions=4)
"""One broker, and two slots inside the driver instead of a Spark cluster."""


class Lone(NamedTuple):
    """Partitions that one node alone holds; another one holds the others."""

    node: int
    partitions: tuple[int, ...]

    def replicas(self, partitions: int) -> list[tuple[int, ...]]:
        """Return the nodes of each partition."""
        return [(self.node,) if number in self.partitions else (1,) for number in range(partitions)]


LONE: Mapping[str, Lone] = {"source": Lone(3, (6, 7)), "sink": Lone(2, (5,))}
FRAGILE = Size(
    workers=0,
    partitions=8,
    replicas={"dead": [(1,)] * 8} | {role: lone.replicas(8) for role, lone in LONE.items()},
    internal=(1,),
)
"""
Two partitions of the source are on one node, one of the sink on another, and everything else on the third.

So those that are spared wait only for the service, and not until Kafka has other leaders and coordinators.
"""
AWAY, ELSEWHERE, SPARE = 3, 1, 2
APART = Size(
    workers=0,
    partitions=4,
    replicas={"source": [(AWAY,)] * 4, "sink": [(ELSEWHERE,)] * 4, "dead": [(ELSEWHERE,)] * 4},
    internal=(ELSEWHERE,),
)
"""All partitions of the source are on one node, everything else is elsewhere, and nothing on the spare one."""
CUT = 1
CUTTABLE = Size(workers=0, partitions=4, replicas={"source": [(1, 3), (1, 2), (1, 3), (1, 3)]})
"""One partition of the source may lose both its nodes, and the brokers still have their majority."""
SHORT_OF_SPACE = 3
SPACE_FOR_LITTLE = Size(workers=0, partitions=4, short_of_space=SHORT_OF_SPACE)
"""The disk of one broker may be filled. It is mounted for that, so it takes a privileged user."""
OWN_CLOCKS = replace(SMALL, own_clocks=True)


class System:
    """
    Brokers, proxies, Spark and drivers; a context manager that leaves no process behind.

    Args:
        size: how many brokers, Spark workers and partitions.
        folder: for logs, configurations and failpoints.
        arm: which service it is; see `tests.chaos.arms`.
        name: the group, and the prefix of the topics.
        recorder: gets faults and logs.
        product: the checkout of the service; by default this one.
    """

    def __init__(
        self, size: Size, folder: Path, arm: str, name: str, *, recorder: Recorder, product: Path | None = None
    ) -> None:
        """Prepare; nothing starts yet."""
        self.size, self.arm, self.name, self.folder = size, arm, name, folder
        self.recorder = recorder
        self.points = folder / "points"
        self.points.mkdir(parents=True)
        self.code = lay_out(product or ROOT, folder)
        self.password_file = folder / "password"
        self.broker = ScramBroker(size.brokers, size.kafka, short_of_space=size.short_of_space)
        self.spark = StandaloneSpark(folder, workers=size.workers) if size.workers else None
        self.clocks = Clocks(folder) if size.own_clocks else None
        self.proxy = Proxy(self.broker.routes, self._note_held)
        self.partitions = size.partitions
        self.generation = 0
        """That of the services that are started now."""
        self.drivers: list[Driver] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start Kafka and Spark in parallel, create the topics, start the service."""
        with self._stack, ThreadPoolExecutor(2) as threads:
            parts = [self.broker, self.proxy, *([self.spark] if self.spark else [])]
            for _ in threads.map(self._stack.enter_context, parts):
                pass
            self.set_password(FIRST_PASSWORD)
            self.password_file.write_text(FIRST_PASSWORD)
            self._place_internal_topics()
            # The source takes what the sink and the dead letters refuse.
            odd = {"message.timestamp.after.max.ms": FOR_EVER_MS, "max.message.bytes": LARGEST_BYTES}
            self._create("source", self.source, odd | {"unclean.leader.election.enable": "true"})
            for role, topic in self.roles.items():
                self._create(role, topic)
            assert until(self._known_everywhere, KNOWN_SECONDS), "a broker does not know the topics"
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
        known = [admin.list_topics(timeout=KNOWN_SECONDS).topics for admin in admins]
        return all(wanted <= topics.keys() for topics in known)

    def _create(self, role: str, topic: str, config: Mapping[str, str] | None = None) -> None:
        """Create a topic whose partitions have a replica on each node, except where the size says which nodes."""
        size, replicas = self.size, self.size.replicas.get(role)
        settings = {"retention.ms": "-1", **(config or {})}
        if replicas is None:
            durable = {"min.insync.replicas": "2"} if size.brokers > 1 else {}
            self.broker.create_topic(topic, size.partitions, settings | durable, replication=size.brokers)
            return
        self.place(topic, replicas, settings)

    def place(self, topic: str, replicas: Sequence[tuple[int, ...]], config: Mapping[str, str]) -> None:
        """Create a topic on the nodes that are named for each partition."""
        wanted = NewTopic(topic, len(replicas), replica_assignment=list(map(list, replicas)), config=dict(config))
        admin = self.broker.admin()  # lives until the answer is there
        admin.create_topics([wanted])[topic].result(KNOWN_SECONDS)

    def _place_internal_topics(self) -> None:
        """Create Kafka's internal topics before Kafka does, where the size says on which nodes."""
        if self.size.internal:
            for topic in (GROUPS, TRANSACTIONS):
                self.place(topic, [self.size.internal] * COORDINATORS, {"cleanup.policy": "compact"})

    def set_password(self, password: str) -> None:
        """Change the password that the brokers ask for, and wait until each knows it; open connections stay open."""
        self.broker.set_password(password)
        assert until(lambda: self.broker.accepts(password), KNOWN_SECONDS), "a broker does not know the password"

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

    def start_driver(
        self,
        *,
        config: Mapping[str, object] = NONE,
        spark: Mapping[str, object] = NONE,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Driver:
        """Start a driver, with other settings of the service and additional ones of Spark, and return it."""
        clock = self.clocks.environment(DRIVER) if self.clocks else {}
        launch = self.launch._replace(environment={**clock, **environment})
        driver = Driver(self.settings(spark) | dict(config), launch)
        driver.__enter__()
        self.drivers.append(driver)
        return driver

    @property
    def launch(self) -> Launch:
        """How drivers are started."""
        return Launch(self.folder, self.code, self.arm, self.points, self.recorder, self.size.forked)

    def settings(self, spark: Mapping[str, object] = NONE) -> dict[str, Any]:
        """Return the configuration of the service."""
        usual: dict[str, Any] = settings(
            ",".join(f"127.0.0.1:{port}" for port in self.broker.outer),
            group=self.name,
            sources=[self.source],
            sink=self.roles["sink"],
            dead=self.roles["dead"],
            round_interval="10s",
            transaction_timeout=f"{TRANSACTION_SECONDS}s",
        )
        usual["generation"] = self.generation
        usual["delivery.guarantee"] = AT_LEAST_ONCE if self.arm == AT_LEAST_ONCE else "exactly-once"
        usual["kafka"] |= self.broker.login({"sasl.password.file": str(self.password_file)})
        usual["spark"] |= self._spark_settings() | dict(spark)
        return usual

    def _spark_settings(self) -> dict[str, object]:
        clock = self.clocks.environment(WORKERS) if self.clocks else {}
        environment = {"PYTHONPATH": str(self.code), **clock}
        python: dict[str, object] = {f"spark.executorEnv.{name}": value for name, value in environment.items()}
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

    def command(self, *arguments: str, module: str = commands.WINNOW) -> commands.Answer:
        """Run a command of the product on the configuration of the service."""
        file = self.folder / "command.yaml"
        file.write_text(json.dumps(self.settings()))  # JSON is YAML
        return commands.run(self.code, file, *arguments, module=module)

    def end_driver(self, driver: Driver) -> None:
        """Remove a driver that was ended, and kill what is left of its processes."""
        driver.record_end(by_itself=False)
        driver.__exit__(None, None, None)
        self.drivers.remove(driver)

    def bury_drivers(self) -> None:
        """Remove the drivers that have ended by themselves."""
        for driver in [each for each in self.drivers if not each.alive]:
            driver.record_end(by_itself=True)
            driver.__exit__(None, None, None)
            self.drivers.remove(driver)

    def revive(self) -> None:
        """Start a driver if none runs, as Kubernetes would."""
        self.bury_drivers()
        if not self.drivers:
            self.recorder.record("driver restarted")
            self.start_driver()

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
                found += jvms(self.spark.process(f"worker-{number}").children())
        return found

    @property
    def workers(self) -> list[psutil.Process]:
        """The Python workers that run a task."""
        roots = self.executors if self.spark else [psutil.Process(each.pid) for each in self.drivers if each.alive]
        find = forked_workers if self.size.forked else working
        return [worker for root in roots for worker in find(root)]

    def add_partitions(self, more: int, node: int | None = None) -> int:
        """Add partitions to the source topic, on one node if it is named; return how many it has now."""
        placed = {} if node is None else {"replica_assignment": [[node]] * more}
        wanted = [NewPartitions(self.source, self.partitions + more, **placed)]
        client(self.broker.bootstrap).create_partitions(wanted)[self.source].result(30)
        self.partitions += more
        return self.partitions

    def transactional_id(self, partition: int) -> str:
        """Return the transactional id for a source partition."""
        return transactional_id(self.name, Partition(self.source, partition))

    def transaction_coordinator(self, partition: int) -> int:
        """Return the node that coordinates the transactions for a source partition."""
        return self.broker.coordinator(TRANSACTIONS, self.transactional_id(partition))

    def group_coordinator(self) -> int:
        """Return the node that coordinates the group."""
        return self.broker.coordinator(GROUPS, self.name)

    def state(self) -> dict[str, object]:
        """Return how many processes of each kind run, for the history."""
        return {
            "drivers": len([each for each in self.drivers if each.alive]),
            "executors": len(self.executors),
            "busy": len(self.workers),
            "brokers": self.broker.running,
        }

    def _note_held(self, request: Packet, seconds: float) -> None:
        about = {"api": request.api, "transactional_id": request.transactional_id}
        self.recorder.record("held", **about, seconds=round(seconds, 3))


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """Stop a process by SIGSTOP for the length of the block."""
    with contextlib.suppress(psutil.NoSuchProcess):
        freeze(process)
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)


def kill(process: psutil.Process) -> None:
    """Kill a process, unless it has ended by itself, and wait until it is dead."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
    alive_after([process], 10)


def until(condition: Callable[[], object], seconds: float) -> bool:
    """Wait for a condition; return whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
