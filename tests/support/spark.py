"""The environment in which Spark starts faster in tests. Independent of the product, which may be another checkout."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pyspark
from pyspark import SparkContext

JARS = Path(pyspark.__file__).with_name("jars")
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a program that lives for minutes, the optimising compiler and the G1 collector cost more than they save."""
ARCHIVE = Path(sys.prefix, "spark.jsa")
"""Stored with its jars, because an archive depends on their paths. Java ignores it for other jars or folders."""
WITH_OR_WITHOUT = "-Xlog:disable -Xlog:all=error:stderr"


def quick_spark() -> dict[str, str]:
    """Return the environment for a process that starts Spark."""
    archive = f"-XX:SharedArchiveFile={ARCHIVE} {WITH_OR_WITHOUT}" if ARCHIVE.exists() else ""
    return {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": " ".join(QUICK),
        "SPARK_SUBMIT_OPTS": archive,
    }


def jvms(processes: Iterable[psutil.Process]) -> Iterator[psutil.Process]:
    """Yield those that are JVMs; others may end meanwhile."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if "java" in process.name():
                yield process


def archive() -> None:
    """Run a Spark job and archive the loaded classes when it stops. Spark cannot start again afterwards."""
    os.environ |= quick_spark() | {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={ARCHIVE} {WITH_OR_WITHOUT}"}
    spark = SparkContext("local[2]", "archived")
    spark.parallelize(range(4), 4).map(str).collect()
    spark.stop()
