"""What Winnow sets of Spark's properties, whatever others have set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.spark import session


@pytest.fixture
def conf() -> Any:
    """Return a SparkConf without a JVM."""
    values: dict[str, str] = {}
    return SimpleNamespace(get=values.get, set=values.__setitem__)


def test_a_property_that_would_do_harm_is_overruled_aloud(conf: Any) -> None:
    """A cluster's defaults may say speculation: every task would fence its twin, so it stays off, and a person is told."""
    conf.set("spark.speculation", "true")

    with capture_logs() as logs:
        session._fix(conf)

    assert "false" == conf.get("spark.speculation")
    (line,) = logs
    assert ("spark.speculation", "true", "false") == (line["property"], line["found"], line["used"])
    assert "fence" in line["why"]


def test_a_property_that_is_right_is_set_in_silence(conf: Any) -> None:
    """Nobody is told what nobody has done."""
    conf.set("spark.speculation", "false")

    with capture_logs() as logs:
        session._fix(conf)

    assert [] == logs
    assert "true" == conf.get("spark.python.worker.reuse")


@pytest.mark.parametrize(
    ("master", "started"),
    [
        ("local", "local[1,8]"),
        ("local[2]", "local[2,8]"),
        ("local[*]", "local[*,8]"),
        ("local[2,3]", "local[2,3]"),
        ("yarn", "yarn"),
    ],
)
def test_a_local_spark_retries_lost_tasks(master: str, started: str) -> None:
    """Without a number it gives up at the first."""
    assert started == session.retrying(master)


def test_a_jvm_is_not_started_with_a_secret() -> None:
    """What it is started with stands among its arguments, for everybody to see; its own Java options do so anyway."""
    properties = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "hunter2",
        "spark.authenticate.secret.file": "/s",
        "spark.hadoop.fs.s3a.access.key": "hunter2",
        "spark.executor.extraJavaOptions": "-Dpassword=hunter2",
        "spark.driver.extraJavaOptions": "-Dpassword=hunter3",
    }

    assert {
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": "/s",
        "spark.driver.extraJavaOptions": "-Dpassword=hunter3",
    } == dict(session._arguments(properties))
