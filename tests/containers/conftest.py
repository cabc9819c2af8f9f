"""Kafka and Winnow in containers, as docker/compose.yaml starts them: the broker's image, Winnow's built from docker/Dockerfile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from testcontainers.core.container import DockerContainer
from testcontainers.core.image import DockerImage
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import ExecWaitStrategy

from app.embedded.broker import Cluster, free_ports

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker/compose.yaml").read_text("utf-8"))["services"]
CONFIG = "/etc/winnow/winnow.yaml"
OUTSIDE = 9094
"""The port of the listener for clients on this host; those of the Compose file are for the network inside."""
START_SECONDS = 120
RUN_SECONDS = 600


class Ended(NamedTuple):
    """The exit code and the output of a container that has ended."""

    code: int
    output: str
    errors: str


Run = Callable[..., Ended]
"""Runs a command in a container of Winnow's image, to its end."""


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    """Return a network of containers."""
    with Network() as network:
        yield network


def confined(container: DockerContainer, service: str) -> DockerContainer:
    """Confine a container as its service is confined in the Compose file, with a read-only root."""
    declared = SERVICES[service]
    for mount in declared["tmpfs"]:
        path, _, options = mount.partition(":")
        container.with_tmpfs_mount(path, options)
    return container.with_kwargs(**{key: declared[key] for key in ("read_only", "cap_drop", "security_opt")})


@pytest.fixture(scope="session")
def kafka(network: Network) -> Iterator[Cluster]:
    """Start the Compose file's broker, with one more listener for the tests."""
    declared = SERVICES["kafka"]
    (port,) = free_ports(1)
    container = (
        confined(DockerContainer(declared["image"]), "kafka").with_network(network).with_network_aliases("kafka")
    )
    outside = f"{container.get_docker_client().host()}:{port}"
    more = {
        "KAFKA_LISTENERS": f"OUTSIDE://:{OUTSIDE}",
        "KAFKA_ADVERTISED_LISTENERS": f"OUTSIDE://{outside}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "OUTSIDE:PLAINTEXT",
    }
    for key, value in declared["environment"].items():
        container.with_env(key, f"{value},{more[key]}" if key in more else str(value))
    container.with_env("KAFKA_INTER_BROKER_LISTENER_NAME", "PLAINTEXT").with_bind_ports(OUTSIDE, port)
    command = declared["healthcheck"]["test"][1:]
    container.waiting_for(ExecWaitStrategy(command).with_startup_timeout(START_SECONDS))
    with container:
        yield Cluster(outside)


@pytest.fixture(scope="session")
def image(network: Network) -> Iterator[str]:
    """Build Winnow's image, and remove it at the end."""
    with DockerImage(ROOT, {"timeout": RUN_SECONDS}, dockerfile_path="docker/Dockerfile") as built:
        yield str(built)


@pytest.fixture(scope="session")
def run(network: Network, image: str) -> Run:
    """Return a function that runs a command in Winnow's image, confined, with the Compose file's configuration."""

    def run_to_end(*command: str) -> Ended:
        # Docker's own timeout also ends a wait for a container.
        container = confined(DockerContainer(image, {"timeout": RUN_SECONDS}), "winnow").with_network(network)
        container.with_volume_mapping(ROOT / "docker/winnow.yaml", CONFIG, "ro").with_command(list(command))
        with container:
            code = container.wait()
            output, errors = container.get_logs()
        return Ended(code, output.decode(), errors.decode())

    return run_to_end
