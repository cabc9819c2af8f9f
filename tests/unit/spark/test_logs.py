"""Spark's own log and UI, in the form of Winnow's."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from app import log
from app.model import Partition
from app.spark import logs
from app.spark.logs import CONFIGURATION, LONGEST_NAME, TEMPLATE, has_own_log, job_name, json_lines, logged_lines
from tests.support.waiting import until


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


def test_what_the_jvm_says_outside_its_log_is_logged_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    """Lines of Log4j pass as they are; the warning about Spark's own module is of no use to anybody."""
    log.configure("info", group="g")
    text = r"""printf '%s\n' 'WARNING: Using incubator modules: jdk.incubator.vector' '{"event": "spark"}' '# SIGSEGV' >&2"""

    with logged_lines() as stderr:
        subprocess.run(["sh", "-c", text], stderr=stderr, check=True)
    until(
        lambda: not [each for each in threading.enumerate() if each.name == "winnow-jvm-log"], "the end of the output"
    )

    of_log4j, other = capfd.readouterr().err.splitlines()
    assert '{"event": "spark"}' == of_log4j
    found = json.loads(other)
    assert ("jvm_output", "warning", "g", "# SIGSEGV") == tuple(
        found[name] for name in ("event", "level", "group", "output")
    )


def test_what_the_jvm_says_is_read_even_if_no_line_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may be full. A JVM whose lines nobody reads stops at the next one."""
    reading, writing = os.pipe()
    os.write(writing, b'{"event": "spark"}\n# SIGSEGV\n')
    os.close(writing)

    with Path("/dev/full").open("wb") as full, capture_logs() as logged:
        monkeypatch.setattr(logs, "STDERR", full.fileno())
        logs._forward(reading)

    assert ["# SIGSEGV"] == [each["output"] for each in logged]


@pytest.mark.parametrize(
    ("properties", "own"),
    [
        ({}, False),
        ({"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=file:/x -Xss2m"}, True),
        ({"spark.driver.extraJavaOptions": "-Xss2m"}, False),
        ({"spark.executor.extraJavaOptions": "-Dlog4j2.configurationFile=file:/x"}, False),
    ],
)
def test_a_users_own_log_stays_as_it_is(properties: dict[str, str], own: bool) -> None:
    """Its lines may have any form, so none of them is an exception."""
    assert own is has_own_log(properties)


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
