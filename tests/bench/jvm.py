"""Fetches the jars of the benchmark's Java programs and compiles the programs once, into the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.embedded.jars import OLDEST_JAVA, JavaMissing, cache_folder, find_java
from app.errors import NotUsable
from tests.support.ivy import Modules, resolved

SOURCES = Path(__file__).with_name("java")
SHARED = ("Cleansing", "DeadLetters")
# The collector with the best throughput, as for Spark's JVM.
FLAGS = ("-Xmx3g", "-XX:+UseParallelGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")


class NotCompiled(NotUsable):
    """A program does not compile with its jars."""


@dataclass(frozen=True, slots=True)
class Program:
    """A class with a `main` in a file of the same name, the jars it needs, and flags for its JVM."""

    name: str
    bundle: Modules
    flags: tuple[str, ...] = ()

    def command(self, *arguments: str) -> list[str]:
        """
        Return the command that runs it.

        Raises:
            NotUsable: the jars, or a JDK, are missing.
        """
        path = f"{self.compiled()}:{resolved(self.bundle)}/*"
        return [find_java(), *FLAGS, *self.flags, "-cp", path, self.name, *arguments]

    def compiled(self) -> Path:
        """Return the folder of its classes. Compile them first if the source changed."""
        sources = [SOURCES / f"{name}.java" for name in (*SHARED, self.name)]
        folder = cache_folder() / f"bench-{self.name}-{_digest(self.bundle, sources)}"
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".bench-") as temporary:
                self._compile(sources, Path(temporary, "classes"))
                # another process may have compiled the same classes meanwhile
                shutil.rmtree(folder, ignore_errors=True)
                Path(temporary, "classes").rename(folder)
        return folder

    def _compile(self, sources: Sequence[Path], folder: Path) -> None:
        command = [_javac(), "-nowarn", "-d", str(folder), "-cp", f"{resolved(self.bundle)}/*", *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            message = f"{self.name} does not compile:\n{done.stderr}"
            raise NotCompiled(message)


def _javac() -> str:
    javac = Path(find_java()).with_name("javac")
    if not os.access(javac, os.X_OK):
        message = f"a JDK {OLDEST_JAVA} or newer is needed, and {javac.parent} has no javac"
        raise JavaMissing(message)
    return str(javac)


def _digest(bundle: Modules, sources: Sequence[Path]) -> str:
    digest = hashlib.sha256(repr(bundle.modules).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


KAFKA_STREAMS = Program(
    "KafkaStreamsJob",
    Modules(
        "kafka-streams-4.3.0",
        ("org.apache.kafka:kafka-streams:4.3.0", "org.slf4j:slf4j-simple:1.7.36"),
    ),
)
FLINK = Program(
    "FlinkJob",
    Modules(
        "flink-2.0.1",
        (
            "org.apache.flink:flink-clients:2.0.1",
            "org.apache.flink:flink-streaming-java:2.0.1",
            "org.apache.flink:flink-connector-base:2.0.1",
            "org.apache.flink:flink-connector-kafka:4.0.1-2.0",
            "org.slf4j:slf4j-simple:1.7.36",
        ),
    ),
    # Flink's start scripts open these packages.
    tuple(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util", "io", "time")),
)
