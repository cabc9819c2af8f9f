"""Creates a second Python environment with PySpark 4.0.0, the last version whose Kafka connector can be downloaded."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

from app.embedded.jars import cache_folder
from tests.support.ivy import Modules, resolved

ROOT = Path(__file__).parents[2]
LOCK = Path(__file__).with_name("requirements-spark-connector.lock")
CONNECTOR = Modules("spark-kafka-connector-4.0.0", ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",))
# PySpark itself ships the other jars that Ivy fetches.
NEEDED = ("spark-sql-kafka-", "spark-token-provider-kafka-", "kafka-clients-", "commons-pool2-")


def connector_jars() -> list[Path]:
    """Return the Kafka jars that PySpark lacks, and fetch them on the first call."""
    return [jar for jar in sorted(resolved(CONNECTOR).glob("*.jar")) if jar.name.startswith(NEEDED)]


def connector_python() -> Path:
    """Return the Python of that environment. The first call creates it from hash-pinned packages."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    folder = cache_folder() / f"bench-spark-4.0.0-{digest}"
    ready, python = folder / ".ready", folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            sys.stderr.write("setting up PySpark 4.0.0 for Spark's own Kafka connector (400 MB, once)\n")
            subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
            (packages,) = folder.glob("lib/python*/site-packages")
            # The Makefile uses uv, which takes a third of pip's time and knows the configured package index.
            subprocess.run(["make", "--silent", "packages", f"PINS={LOCK}", f"FOLDER={packages}"], cwd=ROOT, check=True)
            ready.touch()
    return python
