"""Rules for Spark properties. The configuration uses them, so this module must load without pyspark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")


class Fixed(NamedTuple):
    """The only value that a property may have, and the reason to show to users who set another."""

    value: str
    reason: str


FIXED: Mapping[str, Fixed] = {
    "spark.speculation": Fixed("false", "a speculative attempt would fence the task that it duplicates"),
    "spark.python.worker.reuse": Fixed("true", "a new worker for each task would load everything again"),
    "spark.ui.liveUpdate.period": Fixed(
        "0", "otherwise a lost task is noticed up to 10 s late, from an outdated count of running tasks"
    ),
}
"""The properties that only Winnow may set."""
