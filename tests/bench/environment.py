"""The benchmark's second Python environment: PySpark 4.0.0, the last with a complete Kafka connector in the registries. Made once."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

from app.embedded.jars import Bundle, cache_folder, fetch_jars

LOCK = Path(__file__).with_name("requirements-spark-connector.lock")
CONNECTOR = Bundle(
    "Spark's Kafka connector 4.0.0",
    "spark-kafka-connector-4.0.0",
    "13 jars",
    ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",),
)
# The other jars that Ivy brings are in PySpark itself.
NEEDED = ("spark-sql-kafka-", "spark-token-provider-kafka-", "kafka-clients-", "commons-pool2-")


def connector_jars() -> list[Path]:
    """Return the jars that PySpark lacks to read and write Kafka; the first call fetches them."""
    return [jar for jar in sorted(fetch_jars(CONNECTOR).glob("*.jar")) if jar.name.startswith(NEEDED)]


def connector_python() -> Path:
    """Return the Python of the PySpark 4.0.0 environment; the first call makes it, from hash-pinned packages."""
    folder = cache_folder() / "bench-spark-4.0.0"
    ready, python = folder / ".ready", folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            sys.stderr.write("setting up PySpark 4.0.0 for Spark's own Kafka connector (400 MB, once)\n")
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
            subprocess.run([*pip, "-r", str(LOCK)], check=True)
            ready.touch()
    return python
