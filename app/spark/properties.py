"""
What Winnow knows about Spark's property names, without Spark.

The configuration uses it, and must load where pyspark is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Fixed(NamedTuple):
    """The one value that a property may have, and the reason that a user is given who writes another."""

    value: str
    reason: str


FIXED: Mapping[str, Fixed] = {
    "spark.speculation": Fixed("false", "a speculative attempt would fence the task that it duplicates"),
    "spark.python.worker.reuse": Fixed("true", "a new worker for each task would load everything anew"),
    "spark.ui.liveUpdate.period": Fixed(
        "0", "otherwise a lost task is noticed up to 10 s later, by a count of running tasks that is out of date"
    ),
}
"""The properties that only Winnow sets."""
