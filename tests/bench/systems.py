"""What is measured: each system is a command that cleanses a source topic up to its present end, and leaves."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.environment import connector_jars, connector_python


@dataclass(frozen=True, slots=True)
class Job:
    """One run's topics, names and folder, all fresh but the source."""

    bootstrap: str
    source: str
    sink: str
    dead_letters: str
    partitions: int
    group: str
    folder: Path


@dataclass(frozen=True, slots=True)
class System:
    """A system under test: a name for the table, what it promises, and the command that runs a job."""

    name: str
    guarantee: str
    command: Callable[[Job], list[str]]


def winnow(guarantee: str) -> Callable[[Job], list[str]]:
    """Return what runs Winnow with this guarantee, with nothing else set than a user must set."""

    def command(job: Job) -> list[str]:
        settings = {
            "group.id": job.group,
            "source": {"topics": [job.source], "format": "raw"},
            "sink": {"topic": job.sink},
            "dead.letters": {"topic": job.dead_letters},
            "delivery.guarantee": guarantee,
            "starting.offsets": "earliest",
            "parser": {"name": "idc-access-log"},
            "kafka": {"bootstrap.servers": job.bootstrap},
            "spark": {"spark.master": "local[2]"},
        }
        file = job.folder / "winnow.yaml"
        file.write_text(json.dumps(settings, indent=2))  # JSON is YAML
        return [str(Path(sys.executable).with_name("winnow")), "run", "-c", str(file), "--until-end"]

    return command


def spark_connector(job: Job) -> list[str]:
    """Return what runs the baseline."""
    topics = [job.bootstrap, job.source, job.sink, job.dead_letters, str(job.partitions), str(job.folder)]
    program = Path(__file__).with_name("spark_connector.py")
    return [str(connector_python()), str(program), *topics, *map(str, connector_jars())]


def passthrough(job: Job) -> list[str]:
    """Return what runs Winnow's loop alone, without Spark, to see what parsing and Spark add."""
    topics = [job.bootstrap, job.source, job.sink, job.dead_letters, job.group]
    return [sys.executable, str(Path(__file__).with_name("passthrough.py")), *topics]


SYSTEMS = (
    System("Winnow", "exactly once", winnow("exactly-once")),
    System("Winnow, at least once", "at least once", winnow("at-least-once")),
    System("Spark's Kafka connector", "at least once", spark_connector),
    System("the same loop, passing on", "exactly once", passthrough),
)
