"""The systems to measure: commands that cleanse a source topic up to its current end, then exit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from tests.bench.cc import split_program
from tests.bench.environment import connector_jars, connector_python
from tests.bench.job import Job
from tests.bench.jvm import FLINK, KAFKA_STREAMS

# Long, in Flink's favour: checkpoints cost it more than commits cost the others.
CHECKPOINT_MILLISECONDS = 2_000


@dataclass(frozen=True, slots=True)
class Contender:
    """
    A system under test.

    Args:
        name: its name in the table.
        guarantee: its delivery guarantee.
        command: returns the command line for a job; fetches what it needs, or raises NotUsable.
        tolerated: faults that a verification is expected to find.
    """

    name: str
    guarantee: str
    command: Callable[[Job], list[str]]
    tolerated: frozenset[str] = frozenset()

    @property
    def slug(self) -> str:
        """The name, in characters valid for topics and folders."""
        return self.name.lower().translate(str.maketrans(" ,'[]", "-----"))


def winnow(guarantee: str) -> Callable[[Job], list[str]]:
    """Return the command of Winnow with this guarantee and default settings otherwise."""
    return lambda job: service(job, {"delivery.guarantee": guarantee}, "--until-end")


def service(
    job: Job, settings: Mapping[str, object], *flags: str, spark: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the command of Winnow for a job's topics, with additional settings."""
    needed: dict[str, object] = {
        "group.id": job.group,
        "source": {"topics": [job.source]},
        "sink": {"topic": job.sink},
        "dead.letters": {"topic": job.dead_letters},
        "kafka": {"bootstrap.servers": job.bootstrap},
        "spark": {"spark.master": "local[2]", **spark},
        "http": {"port": 0},
    }
    file = job.folder / "winnow.yaml"
    file.write_text(json.dumps({**needed, **settings}, indent=2))  # JSON is YAML
    return [str(Path(sys.executable).with_name("winnow")), "run", "-c", str(file), *flags]


def spark_connector(job: Job) -> list[str]:
    """Return the command of the baseline."""
    program = Path(__file__).with_name("spark_connector.py")
    arguments = [*job.topics, str(job.partitions), str(job.folder), *map(str, connector_jars())]
    return [str(connector_python()), str(program), *arguments]


def kafka_streams(job: Job) -> list[str]:
    """Return the command of the Kafka Streams job."""
    return KAFKA_STREAMS.command(*job.topics, job.group, str(job.folder))


def flink(job: Job) -> list[str]:
    """Return the command of the Flink job."""
    return FLINK.command(*job.topics, job.group, str(job.partitions), str(CHECKPOINT_MILLISECONDS))


def c_split(job: Job) -> list[str]:
    """Return the command of the C program."""
    return [str(split_program()), *job.topics, job.group, str(job.partitions)]


def passthrough(job: Job) -> list[str]:
    """Return the command of Winnow's loop without parser and Spark."""
    return [sys.executable, str(Path(__file__).with_name("passthrough.py")), *job.topics, job.group]


def earlier(checkout: Path) -> list[Contender]:
    """Return Winnow as in another checkout, with both guarantees and this environment's packages."""
    path = f"PYTHONPATH={checkout.resolve()}"

    def command(system: Contender) -> Callable[[Job], list[str]]:
        return lambda job: ["env", path, *system.command(job)]

    ours = [system for system in SYSTEMS if system.name.startswith("Winnow")]
    return [replace(each, name=f"{each.name} [{checkout.name}]", command=command(each)) for each in ours]


C_FAULTS = frozenset({"wrong_value", "wrong_topic", "wrong_header"})
SYSTEMS = (
    Contender("Winnow", "exactly once", winnow("exactly-once")),
    Contender("Winnow, at least once", "at least once", winnow("at-least-once")),
    Contender("Flink 2.0", "exactly once", flink),
    Contender("Kafka Streams 4.3", "exactly once", kafka_streams),
    # Spark's sink cannot set timestamps.
    Contender("Spark's Kafka connector", "at least once", spark_connector, frozenset({"wrong_timestamp"})),
    # It checks no fields, escapes nothing and has no IPv6; its dead letters have no headers.
    Contender("C on librdkafka, no checks", "exactly once", c_split, C_FAULTS),
    # It does not cleanse.
    Contender("the same loop without a parser", "exactly once", passthrough, frozenset({"wrong_value", "wrong_topic"})),
)
