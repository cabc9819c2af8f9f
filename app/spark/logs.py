"""Gives Spark's own log the format of Winnow's, and rounds a name in Spark's UI."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path

from app.events import Event
from app.model import Partition, in_ranges, numbers_by_topic
from app.spark.properties import JAVA_OPTIONS

CONFIGURATION, TEMPLATE = (Path(str(files("app.spark").joinpath(f"log4j2.{kind}"))) for kind in ("properties", "json"))
LONGEST_NAME = 200
STDERR = 2
# Spark itself asks for that module, at each start.
EXPECTED = b"WARNING: Using incubator modules: jdk.incubator.vector"


def json_lines(group: str) -> Mapping[str, str]:
    """
    Return the properties that make driver and executors log JSON lines like Winnow's.

    They use the options that Spark puts first, so a user's own log4j2 configuration overrides them.
    """
    options = {
        "log4j2.configurationFile": CONFIGURATION.as_uri(),
        "winnow.log.template": TEMPLATE.as_uri(),
        "winnow.group": group,
    }
    written = " ".join(shlex.quote(f"-D{name}={value}") for name, value in options.items())
    return {f"spark.{process}.defaultJavaOptions": written for process in ("driver", "executor")}


def has_own_log(properties: Mapping[str, str]) -> bool:
    """Return whether a user gives the driver's JVM a log4j2 configuration, whose lines have any form."""
    return any("log4j2.configurationFile" in properties.get(name, "") for name in JAVA_OPTIONS)


@contextmanager
def logged_lines() -> Iterator[int]:
    """
    Yield the file descriptor for the stderr of a process that starts meanwhile; our log gets the lines as JSON.

    Log4j's lines are that already. A JVM writes others before its logging starts, and when it crashes.
    """
    reading, writing = os.pipe()
    threading.Thread(target=_forward, args=(reading,), name="winnow-jvm-log", daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)


def _forward(reading: int) -> None:
    with open(reading, "rb") as lines:
        for line in lines:
            if line.startswith(b"{"):
                with suppress(OSError):  # as our log does: else the JVM would wait for somebody who reads
                    os.write(STDERR, line)  # not sys.stderr: a daemon thread may hold its lock when the process ends
            elif not line.startswith(EXPECTED):
                Event.JVM_OUTPUT.log(output=line.decode(errors="backslashreplace").rstrip())


def job_name(number: int, partitions: Iterable[Partition]) -> str:
    """Return the name of a round in Spark's UI: `round 12: raw 0-3, 7; other 0`."""
    numbers = numbers_by_topic(sorted(partitions)).items()
    name = f"round {number}: " + "; ".join(f"{topic} {', '.join(in_ranges(found))}" for topic, found in numbers)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
