"""
The main application file on Kubernetes: the `winnow` command, started by Spark instead of a shell.

A failed driver restarts itself here, because the Spark operator would wait longer after each attempt, without a limit.
It also removes the finished executor pods of earlier drivers. The application or the driver's pod owns them, so
Kubernetes would keep them as long as their owner.
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

from app import log
from app.cli import main
from app.driver.stop import Stop
from app.events import Event

# A copy: the command removes its configuration, which may contain secrets, from the environment.
ENVIRONMENT = dict(os.environ)
# No retry after a clean end, nor after a wrong configuration, which only a new pod can fix.
FINAL = (None, 0, 2)
ATTEMPT = "DRIVER_ATTEMPT"
RUN, STAND_BY = "run", "--stand-by"
FIRST_SECONDS, LONGEST_SECONDS = 5.0, 60.0
# After a run of this length, a failure counts as the first one again.
WELL_SECONDS = 600.0
LOOK_SECONDS = 0.2

LABELS = "EXECUTOR_LABELS"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FINISHED = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"


def run() -> None:
    """Run the command. If it fails, run it again in this process, because Kafka or Spark may be usable by then."""
    began = time.monotonic()
    log.configure()  # the command does so when it has read its configuration; until then structlog would show secrets
    if executors := os.environ.get(LABELS):
        remove_finished_executors(executors)
    try:
        main()
    except SystemExit as ended:
        if ended.code in FINAL:
            raise
    except Exception as error:  # noqa: BLE001  # whatever it is, the next attempt may work
        Event.DRIVER_CRASHED.log(exc_info=error)
    again(1 if time.monotonic() - began > WELL_SECONDS else int(os.environ.get(ATTEMPT, "0")) + 1)


def again(attempt: int) -> NoReturn:
    """Wait for a minute at most, then restart; a signal ends it cleanly, also one that came before the failure."""
    if Stop.signalled:
        sys.exit(0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    seconds = pause(attempt)
    Event.DRIVER_RESTARTING.log(attempt=attempt, in_seconds=seconds, at_most_seconds=LONGEST_SECONDS)
    until = time.monotonic() + seconds
    while time.monotonic() < until:  # in steps: a signal received by another thread does not end a long sleep
        time.sleep(LOOK_SECONDS)
    as_before = ENVIRONMENT | {ATTEMPT: str(attempt)}
    command = [sys.executable, *sys.argv]
    if RUN in command and STAND_BY not in command:
        # A driver that is working by now has replaced this one, whose node may have been lost for a while.
        command.append(STAND_BY)
    os.execve(sys.executable, command, as_before)  # noqa: S606  # no shell, as at the first start


def pause(attempt: int) -> float:
    """Return the seconds to wait before this attempt: doubled each time, up to a limit."""
    doublings = min(attempt - 1, 10)  # a thousand of them overflow
    return min(FIRST_SECONDS * 2.0**doublings, LONGEST_SECONDS)


def reap() -> None:
    """Reap the previous attempt's children, such as its JVM."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def remove_finished_executors(labels: str) -> None:
    """Remove the finished pods with these labels. The driver works even if the cluster denies that."""
    try:
        namespace = (ACCOUNT / "namespace").read_text()
        pods = f"/api/v1/namespaces/{namespace}/pods"
        for name in finished(pods, labels):
            asked("DELETE", f"{pods}/{name}")
    except (OSError, http.client.HTTPException) as error:
        Event.EXECUTORS_LEFT.log(reason=str(error))


def finished(pods: str, labels: str) -> Iterator[str]:
    """Yield the names of the finished pods."""
    query = urlencode({"labelSelector": labels, "fieldSelector": FINISHED})
    for pod in json.loads(asked("GET", f"{pods}?{query}"))["items"]:
        yield pod["metadata"]["name"]


def asked(method: str, path: str) -> bytes:
    """Send a request to the API server as the pod's account; raise OSError unless it succeeds or finds nothing."""
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
    run()
