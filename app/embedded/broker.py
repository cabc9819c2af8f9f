"""A real Apache Kafka in a temporary folder, without Docker, for the demo, the tests and the benchmarks."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from secrets import token_urlsafe

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.jars import fetch_jars, find_java
from app.embedded.process import ManagedProcess, Startable
from app.errors import NotUsable

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
START_SECONDS = 300
"""How long a busy machine may take. A server that has ended is noticed at once."""
LOOK_SECONDS = 5.0
"""A client that cannot connect tries again meanwhile, so a shorter look would find a busy server no sooner."""
META, CHECKPOINT = "meta.properties", "bootstrap.checkpoint"
"""The files of a formatted log folder."""
HEAP = ("-Xms128m", "-Xmx1g", "-XX:MaxMetaspaceSize=256m", "-XX:+ExitOnOutOfMemoryError")
LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 200}
LATE = (KafkaError._DESTROY_BROKER, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)  # noqa: SLF001
"""The errors of a request that may have been carried out."""
# Outside the ephemeral range: a client that retries a stopped broker's port could otherwise be given it as its own.
PORTS = range(20_000, 32_000)


class BrokerFailed(NotUsable):
    """The embedded Kafka did not start or is not responding."""


class Cluster:
    """A running Kafka that is managed elsewhere."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin: AdminClient | None = None

    def admin(self) -> AdminClient:
        """Return a quiet admin client, reused until a server ends."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        return self._admin

    def create_topics(self, *topics: NewTopic) -> None:
        """Create topics; ask again if a busy node is late, or drops out of the metadata with the requests it has."""
        missing, asked_again = {topic.topic: topic for topic in topics}, False
        deadline = time.monotonic() + START_SECONDS
        while missing:
            wanted = self.admin().create_topics(list(missing.values()), request_timeout=START_SECONDS)
            for name, created in wanted.items():
                try:
                    created.result()
                except KafkaException as error:
                    match error.args[0].code():
                        case code if code in LATE and time.monotonic() < deadline:
                            asked_again = True
                            continue
                        case KafkaError.TOPIC_ALREADY_EXISTS if asked_again:
                            pass
                        case _:
                            raise
                del missing[name]

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, replication: int = 1
    ) -> str:
        """Create a topic, wait until each partition has a leader, and return its name."""
        # Demo records have timestamps of 2017: time-based retention would delete them at once.
        settings = {"retention.ms": "-1", **(config or {})}
        self.create_topics(NewTopic(name, partitions, replication, config=settings))
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):  # a busy machine has not answered yet
                known = self.admin().list_topics(name, timeout=10).topics[name].partitions
                if len(known) == partitions and all(p.leader >= 0 for p in known.values()):
                    return name
        raise BrokerFailed(
            f"Topic {name} was created, but some of its partitions still have no leader after {START_SECONDS} s."
        )


class Broker(Cluster, Startable):
    """
    Apache Kafka 4.3.0 (KRaft, controller and broker in one process) on free loopback ports, with one or more nodes.

    As a context manager it starts, stops and removes its data. `start()` after `stop()` or `kill()` brings it back on
    the same ports with the same data.

    Args:
        nodes: the number of servers; with three, internal topics have three replicas.
        properties: server properties that override those set here.
        folder: where to keep data and logs; by default a temporary folder that is removed at the end.
        java: additional JVM options.
        jars: the folder of another version of Kafka; by default the one above.
    """

    def __init__(
        self,
        nodes: int = 1,
        properties: Mapping[str, str] | None = None,
        folder: Path | None = None,
        java: Sequence[str] = (),
        jars: Path | None = None,
    ) -> None:
        self._java = tuple(java)
        self.jars = jars
        """May change before a start: a node keeps its data."""
        self._keep = folder is not None
        self.folder = folder or Path(tempfile.gettempdir(), f"winnow-kafka-{os.getpid()}-{random.getrandbits(32):08x}")
        self._held = HeldPorts(2 * nodes)
        self._ports, self._controllers = self._held[:nodes], self._held[nodes:]
        self._properties = dict(properties or {})
        self._processes: dict[int, ManagedProcess] = {}
        super().__init__(",".join(f"127.0.0.1:{port}" for port in self._ports))

    @property
    def pids(self) -> list[int]:
        """The pids of the running servers' supervisors; each server is the child of one."""
        return [process.pid for process in self._processes.values() if process.poll() is None]

    def start(self, node: int | None = None) -> None:
        """Start all nodes, or one that was stopped, and wait until the cluster responds."""
        java, jars = find_java(), self.jars or fetch_jars()
        nodes = self._nodes(node)
        try:
            for each in nodes:
                self._prepare(each, java, jars)
                self._processes[each] = self._launch(each, java, jars)
            self._await_ready()
        except BaseException:  # includes Ctrl-C: no server may outlive a failed start
            self.kill(node)
            raise

    def kill(self, node: int | None = None) -> None:
        """Kill all nodes or one by SIGKILL; their data stay as they are."""
        self.stop(node, at_once=True)

    def stop(self, node: int | None = None, *, at_once: bool = False) -> None:
        """Stop all nodes or one; their data stay. Each is signalled before any is waited for: they stop in parallel."""
        self._admin = None  # a client whose only broker was killed may never get a response again (librdkafka 2.16)
        ending = [self._processes.pop(each) for each in self._nodes(node) if each in self._processes]
        for process in ending:
            process.stop(at_once=at_once)
        for process in ending:
            process.stop_and_wait()

    def close(self) -> None:
        """End the servers and remove their data, unless a folder was given."""
        if self._keep:
            self.stop()
        else:
            self.kill()  # the data are about to be removed: no orderly stop needed
            shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self) -> str:
        logs = sorted(self.folder.glob("node-*/server.log"))
        return "\n".join("\n".join(log.read_text(errors="replace").splitlines()[-20:]) for log in logs)

    def _nodes(self, node: int | None) -> list[int]:
        return list(range(1, len(self._ports) + 1)) if node is None else [node]

    def _prepare(self, node: int, java: str, jars: Path) -> None:
        folder = self.folder / f"node-{node}"
        folder.mkdir(parents=True, exist_ok=True)
        rows = {**self._server_properties(node), **self._properties}
        (folder / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
        data = folder / "data"
        if not (data / META).exists():
            data.mkdir()
            meta, checkpoint = _formatted(java, jars)
            mine = {"node.id": str(node), "directory.id": token_urlsafe(16)}  # in Kafka's format
            (data / META).write_text("".join(f"{key}={value}\n" for key, value in (meta | mine).items()))
            (data / CHECKPOINT).write_bytes(checkpoint)

    def _server_properties(self, node: int) -> dict[str, str]:
        mine = f"PLAINTEXT://127.0.0.1:{self._ports[node - 1]}"
        voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(self._controllers, 1))
        replicas = min(3, len(self._ports))
        in_sync = str(replicas // 2 + 1)
        return {
            "offsets.topic.num.partitions": "5",
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.num.partitions": "5",
            "share.coordinator.state.topic.replication.factor": str(replicas),
            "share.coordinator.state.topic.min.isr": in_sync,
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{mine},CONTROLLER://127.0.0.1:{self._controllers[node - 1]}",
            "advertised.listeners": mine,
            "log.dirs": str(self.folder / f"node-{node}" / "data"),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.hours": "-1",
            # The kernel reads ahead in each index file, which is mapped whole: with the default of 10 MB, it wrote
            # more zeros than a small partition has records.
            "log.index.size.max.bytes": str(1 << 20),
            # How long a killed server stays registered, and so the minimum time of its restart.
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "1000",
            # These wake an idle server: with Kafka's defaults it takes half as much CPU again.
            "metadata.max.idle.interval.ms": "20000",
            "num.network.threads": "2",
            "num.io.threads": "4",
        }

    def _launch(self, node: int, java: str, jars: Path) -> ManagedProcess:
        folder = self.folder / f"node-{node}"
        server = [java, *HEAP, *self._java, *LOGGING, "-Djava.awt.headless=true", "-cp", f"{jars}/*", "kafka.Kafka"]
        command = [*server, str(folder / "server.properties")]
        return ManagedProcess(command, folder / "server.log", remove_on_death=None if self._keep else self.folder)

    def _await_ready(self) -> None:
        """Wait until the metadata of each started node list all of them and a leader for each partition."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for process in self._processes.values():
                if (code := process.poll()) is not None:
                    raise BrokerFailed(f"Kafka exited during startup (exit code {code}):\n{self.log_tail()}")
            try:
                if all(self._is_whole(node) for node in self._processes):
                    return
            except KafkaException:
                continue  # not listening yet
        raise BrokerFailed(f"Kafka at {self.bootstrap} did not respond within {START_SECONDS} s:\n{self.log_tail()}")

    def _is_whole(self, node: int) -> bool:
        """
        Return whether a node knows all started nodes, and a leader for each partition.

        A node may answer before it knows the others. A client that learnt of them from another node then drops them,
        with the requests that they have (librdkafka's _DESTROY_BROKER).
        """
        # Only a new client is sure to ask this node.
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self._ports[node - 1]}", **QUIET})
        known = admin.list_topics(timeout=LOOK_SECONDS)
        leaders = (each.leader for topic in known.topics.values() for each in topic.partitions.values())
        return len(known.brokers) == len(self._processes) and all(leader >= 0 for leader in leaders)


@cache
def _formatted(java: str, jars: Path) -> tuple[dict[str, str], bytes]:
    """
    Format a log folder with Kafka's tool, once per process, because each run starts a JVM.

    Returns:
        Its properties, of which `node.id` and `directory.id` are specific to a node, and its checkpoint.
    """
    with tempfile.TemporaryDirectory(prefix="winnow-kafka-") as folder:
        data, file = Path(folder, "data"), Path(folder, "server.properties")
        file.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\n"
            f"controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://:2,CONTROLLER://:1\nlog.dirs={data}\n"
        )
        command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", *LOGGING, "-cp", f"{jars}/*", "kafka.tools.StorageTool"]
        command += ["format", "-t", CLUSTER_ID, "-c", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        if done.returncode:
            raise BrokerFailed(f"Kafka failed to format a log folder:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        rows = [row for row in (data / META).read_text().splitlines() if not row.startswith("#")]
        return dict(row.split("=", 1) for row in rows), (data / CHECKPOINT).read_bytes()


class HeldPorts(list[int]):
    """
    Loopback ports reserved while this object lives.

    Each port is bound by a socket that does not listen. A server with SO_REUSEADDR, as is usual, can bind it as well,
    but a search for a free port like ours cannot.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self._sockets: list[int] = []
        candidates = random.sample(PORTS, len(PORTS))
        while len(self) < count:
            holder, port = socket.socket(), candidates.pop()
            try:
                holder.bind(("127.0.0.1", port))
            except OSError:
                holder.close()
                continue
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # only now: two holders must not share a port
            self.append(port)
            self._sockets.append(holder.detach())

    def __del__(self) -> None:
        for number in self._sockets:
            os.close(number)
