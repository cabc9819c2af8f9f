"""What the tests of the image require of its backend: a container engine, or Debian's own tools."""

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
"""The path of docker/winnow.yaml in each container, as the Compose file mounts it."""
BUILD_SECONDS, RUN_SECONDS, STOP_SECONDS = 3_600, 600, 240


class Ended(NamedTuple):
    """The exit code and the output of a program that has ended."""

    code: int
    output: str
    errors: str


class Container(Protocol):
    """A running container. Leaving its `with` block kills it if it is still running."""

    def execute(self, *command: str) -> Ended:
        """Run another command in the container to completion."""
        ...

    def stop(self) -> Ended:
        """Send SIGTERM, as every engine does, and wait for the end."""
        ...


class Image(Protocol):
    """
    The built image, run under the restrictions of docker/compose.yaml: read-only root, no capabilities, /tmp in memory.

    `kafka` is the broker as the tests see it and `bootstrap` its address inside containers. `config` is the image's
    configuration, with Docker's names.
    """

    kafka: Cluster
    bootstrap: str
    config: dict[str, Any]

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> Ended:
        """Run a command in a new container to completion."""
        ...

    def start(self, *command: str, environment: Mapping[str, str] | None = None) -> AbstractContextManager[Container]:
        """Run a command in a new container while the block runs."""
        ...
