"""Gives Spark's own log the format of Winnow's, and rounds a name in Spark's UI."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from app.model import Partition

CONFIGURATION, TEMPLATE = (Path(str(files("app.spark").joinpath(f"log4j2.{kind}"))) for kind in ("properties", "json"))
LONGEST_NAME = 200


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


def job_name(number: int, partitions: Iterable[Partition]) -> str:
    """Return the name of a round in Spark's UI: `round 12: raw 0-3, 7; other 0`."""
    numbers = {
        topic: [partition.number for partition in found]
        for topic, found in groupby(sorted(partitions), lambda partition: partition.topic)
    }
    name = f"round {number}: " + "; ".join(f"{topic} {_ranges(found)}" for topic, found in numbers.items())
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _ranges(numbers: Iterable[int]) -> str:
    """Format ascending numbers: `0-3, 7`."""
    runs = (list(run) for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]))
    return ", ".join(f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else str(run[0][1]) for run in runs)
