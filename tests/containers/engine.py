"""Checks whether a container engine answers here, and if none does, why."""

from __future__ import annotations

import contextlib
import gc
import os
import warnings

from docker.errors import DockerException
from testcontainers.core.docker_client import DockerClient

ANSWER_SECONDS = 2
USUAL = "/var/run/docker.sock"


def why_no_engine() -> str:
    """Connect to the engine that testcontainers would use; return why it does not answer in one line, or nothing."""
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
