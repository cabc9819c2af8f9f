"""Builds and runs the image with a container engine, next to the Compose file's broker image."""

from __future__ import annotations

import contextlib
import gc
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.image import DockerImage
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import ExecWaitStrategy

from app.embedded.broker import Cluster, HeldPorts
from tests.containers.contract import BUILD_SECONDS, CONFIG, ROOT, RUN_SECONDS, SERVICES, STOP_SECONDS, Ended

ANSWER_SECONDS = 2
START_SECONDS = 120
USUAL = "/var/run/docker.sock"
OUTSIDE = 9094
"""The port of the client listener on this host. The Compose file's listeners are for its internal network."""


def why_no_engine() -> str:
    """Connect to the engine of testcontainers. Return in one line why it does not respond, or an empty string."""
    where = f"DOCKER_HOST={os.environ['DOCKER_HOST']}" if os.environ.get("DOCKER_HOST") else USUAL
    with warnings.catch_warnings():
        # docker leaves the socket of a failed connection to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        problem = _ask()
        gc.collect()
    return f"no container engine answers at {where}: {problem}" if problem else ""


def _ask() -> str:
    try:
        with contextlib.closing(DockerClient(timeout=ANSWER_SECONDS).client) as client:
            client.ping()
    except (DockerException, OSError) as error:  # the errors of requests are OSErrors
        return " ".join(str(error).split())
    return ""


@contextmanager
def image_of_engine() -> Iterator[EngineImage]:
    """Build the image and start Kafka. Remove both at the end."""
    with Network() as network, _kafka(network) as kafka:
        arguments = {"timeout": BUILD_SECONDS}
        build = DockerImage(ROOT, arguments, dockerfile_path="docker/Dockerfile", buildargs={"REVISION": "tested"})
        with build as built:
            yield EngineImage(str(built), network, kafka)


class EngineContainer:
    """A running container of an engine."""

    def __init__(self, container: DockerContainer) -> None:
        self._container = container

    def execute(self, *command: str) -> Ended:
        """Run another command in the container to completion."""
        code, (output, errors) = self._container.get_wrapped_container().exec_run(list(command), demux=True)
        return Ended(code, (output or b"").decode(), (errors or b"").decode())

    def stop(self) -> Ended:
        """Send SIGTERM and wait."""
        self._container.get_wrapped_container().stop(timeout=STOP_SECONDS)
        return self.wait()

    def wait(self) -> Ended:
        """Wait for the end."""
        code = self._container.wait()
        output, errors = self._container.get_logs()
        return Ended(code, output.decode(), errors.decode())


class EngineImage:
    """The image in an engine, and a broker in the same network."""

    def __init__(self, name: str, network: Network, kafka: Cluster) -> None:
        self._name, self._network = name, network
        self.kafka, self.bootstrap = kafka, "kafka:9092"
        with contextlib.closing(DockerClient().client) as client:
            self.config: dict[str, Any] = client.images.get(name).attrs["Config"]

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> Ended:
        """Run a command in a new container to completion."""
        with self.start(*command, environment=environment) as container:
            return container.wait()

    @contextmanager
    def start(self, *command: str, environment: Mapping[str, str] | None = None) -> Iterator[EngineContainer]:
        """Run a command in a new container while the block runs."""
        # Docker's own timeout also limits a wait for a container.
        container = _confined(DockerContainer(self._name, {"timeout": RUN_SECONDS}), "winnow")
        container.with_network(self._network).with_command(list(command)).with_envs(**(environment or {}))
        with container.with_volume_mapping(ROOT / "docker/winnow.yaml", CONFIG, "ro"):
            yield EngineContainer(container)


@contextmanager
def _kafka(network: Network) -> Iterator[Cluster]:
    """Start the Compose file's broker with an extra listener for the tests."""
    declared = SERVICES["kafka"]
    ports = HeldPorts(1)
    container = (
        _confined(DockerContainer(declared["image"]), "kafka").with_network(network).with_network_aliases("kafka")
    )
    outside = f"{container.get_docker_client().host()}:{ports[0]}"
    more = {
        "KAFKA_LISTENERS": f"OUTSIDE://:{OUTSIDE}",
        "KAFKA_ADVERTISED_LISTENERS": f"OUTSIDE://{outside}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "OUTSIDE:PLAINTEXT",
    }
    for key, value in declared["environment"].items():
        container.with_env(key, f"{value},{more[key]}" if key in more else str(value))
    container.with_env("KAFKA_INTER_BROKER_LISTENER_NAME", "PLAINTEXT").with_bind_ports(OUTSIDE, ports[0])
    command = declared["healthcheck"]["test"][1:]
    container.waiting_for(ExecWaitStrategy(command).with_startup_timeout(START_SECONDS))
    with container:
        yield Cluster(outside)


def _confined(container: DockerContainer, service: str) -> DockerContainer:
    """Restrict a container like its service in the Compose file, with a read-only root."""
    declared = SERVICES[service]
    for mount in declared["tmpfs"]:
        path, _, options = mount.partition(":")
        container.with_tmpfs_mount(path, options)
    return container.with_kwargs(**{key: declared[key] for key in ("read_only", "cap_drop", "security_opt")})
