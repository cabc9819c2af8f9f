"""
The image's health check: asks the service in this container whether it is alive. Any other process counts as healthy.

Like the service, it takes a non-default port from WINNOW_HTTP__PORT or WINNOW_HTTP_PORT.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

PORT = 8090
SECONDS = 4


def is_service(command: list[str]) -> bool:
    """Return whether a container's first command is `winnow run` or the Spark driver on Kubernetes that runs it."""
    return any(verb == "run" and Path(program).name in ("winnow", "main.py") for program, verb in pairwise(command))


def port_in(environ: Mapping[str, str]) -> int:
    return int(environ.get("WINNOW_HTTP__PORT") or environ.get("WINNOW_HTTP_PORT") or PORT)


def trouble(port: int) -> str:
    """Return why the service is not alive; empty if it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        said = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"the service is not responding on port {port}: {error}"
    finally:
        connection.close()
    return "" if answer.status == http.HTTPStatus.OK else said


if __name__ == "__main__" and is_service(Path("/proc/1/cmdline").read_text("utf-8").split("\0")):
    sys.exit(trouble(port_in(os.environ)) or 0)
