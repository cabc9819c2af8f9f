"""The programs of Kafka's scripts."""

from __future__ import annotations

import subprocess

from app.embedded.jars import fetch_jars, find_java
from tests.servers.bundles import KAFKA_TOOLS
from tests.support.java import quick_java
from tests.support.waiting import PATIENCE


def kafka_tool(program: str, *arguments: str) -> str:
    """Return what a program of Kafka's scripts prints."""
    jars = f"{fetch_jars(KAFKA_TOOLS)}/*:{fetch_jars()}/*"
    command = [find_java(), "-Xmx128m", *quick_java(), "-cp", jars, program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
