"""
The main application file on Kubernetes: the `winnow` command, started by Spark instead of by a shell.

It also does what nobody else does there. A driver that fails starts itself again: the Spark operator would wait longer
after each attempt, without a bound. And it removes the finished executors of earlier drivers: those belong to the
application or to the pod, too, so Kubernetes keeps them as long as these.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlencode

import structlog

from app.cli import main

log = structlog.get_logger()

# The command takes its configuration out of the environment, because that may hold secrets.
ENVIRONMENT = dict(os.environ)
# Neither a clean end nor a wrong configuration, which only another pod cures, is tried again.
FINAL = (None, 0, 2)
ATTEMPT = "DRIVER_ATTEMPT"
RUN, STAND_BY = "run", "--stand-by"
FIRST_SECONDS, LONGEST_SECONDS = 5.0, 60.0
# A driver that ran for so long was well: its end is the first one of another trouble.
WELL_SECONDS = 600.0
LOOK_SECONDS = 0.2

LABELS = "EXECUTOR_LABELS"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FINISHED = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"


def run() -> None:
    """Run the command; if it fails, run it again in this very process, because Kafka or Spark may be usable by then."""
    began = time.monotonic()
    try:
        main()
    except SystemExit as ended:
        if ended.code in FINAL:
            raise
    except Exception:
        log.exception("the driver failed for a reason that it does not know: please report this")
    again(1 if time.monotonic() - began > WELL_SECONDS else int(os.environ.get(ATTEMPT, "0")) + 1)


def again(attempt: int) -> NoReturn:
    """Wait, at most for a minute, and start anew; a signal ends it cleanly."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    seconds = pause(attempt)
    log.warning("the driver starts again", attempt=attempt, in_seconds=seconds, at_most_seconds=LONGEST_SECONDS)
    until = time.monotonic() + seconds
    while time.monotonic() < until:  # in steps: a signal that another thread receives does not end a long sleep
        time.sleep(LOOK_SECONDS)
    as_before = ENVIRONMENT | {ATTEMPT: str(attempt)}
    command = [sys.executable, *sys.argv]
    if RUN in command and STAND_BY not in command:
        # Another driver that works by now has replaced this one, whose node may have been lost for a while.
        command.append(STAND_BY)
    os.execve(sys.executable, command, as_before)  # noqa: S606  # without a shell, as it was started


def pause(attempt: int) -> float:
    """Return for how many seconds to wait before this attempt: each time twice as long, to a bound."""
    return min(FIRST_SECONDS * 2 ** (attempt - 1), LONGEST_SECONDS)


def reap() -> None:
    """Let go of what the attempt before this one has started: its JVM has ended since."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def remove_finished_executors(labels: str) -> None:
    """Remove the finished pods with these labels; the driver works all the same if the cluster refuses that."""
    try:
        namespace = (ACCOUNT / "namespace").read_text()
        pods = f"/api/v1/namespaces/{namespace}/pods"
        for name in finished(pods, labels):
            asked("DELETE", f"{pods}/{name}")
    except (OSError, http.client.HTTPException) as error:
        log.warning("finished executors of earlier drivers stay", because=str(error))


def finished(pods: str, labels: str) -> Iterator[str]:
    """Name the pods that have ended."""
    query = urlencode({"labelSelector": labels, "fieldSelector": FINISHED})
    for pod in json.loads(asked("GET", f"{pods}?{query}"))["items"]:
        yield pod["metadata"]["name"]


def asked(method: str, path: str) -> bytes:
    """Ask the API server as the pod's account; raise OSError unless it does so, or has done so already."""
    trust = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    server = http.client.HTTPSConnection(host, port, context=trust, timeout=10)
    try:
        server.request(method, path, headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"})
        answer = server.getresponse()
        body = answer.read()
    finally:
        server.close()
    if answer.status not in (http.client.OK, http.client.ACCEPTED, http.client.NOT_FOUND):
        message = f"{method} {path}: {answer.status} {answer.reason}"
        raise OSError(message)
    return body


if __name__ == "__main__":
    reap()
    if executors := os.environ.get(LABELS):
        remove_finished_executors(executors)
    run()
