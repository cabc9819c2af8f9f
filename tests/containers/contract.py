"""What the tests of the image ask of whoever builds and runs it: a container engine, or Debian's own tools."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import yaml

from app.embedded.broker import Cluster

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker/compose.yaml").read_text("utf-8"))["services"]
CONFIG = "/etc/winnow/winnow.yaml"
"""Where each container has docker/winnow.yaml, as the Compose file mounts it."""
BUILD_SECONDS, RUN_SECONDS, STOP_SECONDS = 1_500, 600, 240


class Ended(NamedTuple):
    """The exit code and the output of a program that has ended."""

    code: int
    output: str
    errors: str


class Container(Protocol):
    """A container that runs; whoever leaves its `with` block without an end kills it."""

    def execute(self, *command: str) -> Ended:
        """Run a command beside the container's own, to its end."""
        ...

    def stop(self) -> Ended:
        """Send SIGTERM, as every engine does, and wait."""
        ...


class Image(Protocol):
    """
    The built image, run as docker/compose.yaml confines it: read-only root, no capability, /tmp in memory.

    `kafka` is a broker as the tests see it, `bootstrap` its address as containers see it, `config` what the image says
    of itself, with Docker's names.
    """

    kafka: Cluster
    bootstrap: str
    config: dict[str, Any]

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> Ended:
        """Run a command in a new container, to its end."""
        ...

    def start(self, *command: str, environment: Mapping[str, str] | None = None) -> AbstractContextManager[Container]:
        """Run a command in a new container while the block runs."""
        ...
