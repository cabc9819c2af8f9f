"""Spark's own log and UI, in the form of Winnow's."""

from __future__ import annotations

import json
import shlex

import pytest

from app.model import Partition
from app.spark.logs import CONFIGURATION, LONGEST_NAME, TEMPLATE, job_name, json_lines


def test_driver_and_executors_log_alike() -> None:
    """It uses the options that come first, so a user's own override them. A group's name may hold any character."""
    properties = json_lines("my group's name")

    assert {"spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions"} == properties.keys()
    (options,) = set(properties.values())
    assert f"-Dlog4j2.configurationFile={CONFIGURATION.as_uri()}" in shlex.split(options)
    assert "-Dwinnow.group=my group's name" in shlex.split(options)


def test_the_shape_of_a_line_is_that_of_winnow() -> None:
    """Its first fields have the same names, and the configuration names this template."""
    assert ["timestamp", "level", "event"] == [*json.loads(TEMPLATE.read_text())][:3]
    assert {"group", "round"} < json.loads(TEMPLATE.read_text()).keys()
    assert "${sys:winnow.log.template}" in CONFIGURATION.read_text()


@pytest.mark.parametrize(
    ("partitions", "name"),
    [
        ([], "round 12: "),
        ([("raw", 0)], "round 12: raw 0"),
        ([("raw", 7), ("raw", 0), ("raw", 2), ("raw", 1), ("other", 0)], "round 12: other 0; raw 0-2, 7"),
    ],
)
def test_a_round_is_named_by_its_partitions(partitions: list[tuple[str, int]], name: str) -> None:
    """The name is as short as possible."""
    assert name == job_name(12, [Partition(*each) for each in partitions])


def test_a_name_ends_somewhere() -> None:
    """A round of many topics has a truncated name."""
    name = job_name(1, [Partition(f"topic-{number}", 0) for number in range(100)])

    assert LONGEST_NAME == len(name)
    assert name.endswith("…")
