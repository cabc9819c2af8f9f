"""The environment in which Spark starts with half the work in tests. Knows nothing of the product: it may be another checkout."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import SparkContext

QUICK = "-XX:TieredStopAtLevel=1"
"""For a program that lives for minutes: optimising its code takes more time than it saves."""
ARCHIVE = Path(sys.prefix, "spark.jsa")
"""Beside its jars: an archive knows their paths. With other ones, or other folders, Java goes without it."""
WITH_OR_WITHOUT = "-Xlog:disable -Xlog:all=error:stderr"


def quick_spark() -> dict[str, str]:
    """Return the environment of a process that starts Spark."""
    archive = f"-XX:SharedArchiveFile={ARCHIVE} {WITH_OR_WITHOUT}" if ARCHIVE.exists() else ""
    return {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": f"{QUICK} -XX:+UseSerialGC",
        "SPARK_SUBMIT_OPTS": archive,
    }


def archive() -> None:
    """Let Spark run a job, and archive the classes that it has loaded when it stops; nothing may start after it."""
    os.environ |= quick_spark() | {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={ARCHIVE} {WITH_OR_WITHOUT}"}
    spark = SparkContext("local[2]", "archived")
    spark.parallelize(range(4), 4).map(str).collect()
    spark.stop()
