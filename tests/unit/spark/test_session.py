"""The Spark properties that Winnow sets, whatever else is set."""

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
    return SimpleNamespace(get=values.get, set=values.__setitem__, setIfMissing=values.setdefault)


def test_a_property_that_would_do_harm_is_overruled_aloud(conf: Any) -> None:
    """A cluster may enable speculation, which would make tasks fence each other. It stays off, and the log says so."""
    conf.set("spark.speculation", "true")

    with capture_logs() as logs:
        session._fix(conf)

    assert "false" == conf.get("spark.speculation")
    (line,) = logs
    assert ("spark.speculation", "true", "false") == (line["property"], line["found"], line["used"])
    assert "fence" in line["why"]


def test_a_property_that_is_right_is_set_in_silence(conf: Any) -> None:
    """There is nothing to log."""
    conf.set("spark.speculation", "false")

    with capture_logs() as logs:
        session._fix(conf)

    assert [] == logs
    assert "true" == conf.get("spark.python.worker.reuse")


@pytest.mark.parametrize(
    ("submitted", "level"), [({}, "WARN"), ({"spark.log.level": "INFO"}, "INFO")], ids=["wanted", "submitted"]
)
def test_the_log_level_of_spark_submit_wins(
    conf: Any, submitted: dict[str, str], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the JVM knows it."""
    for name, value in submitted.items():
        conf.set(name, value)
    levels: list[str] = []
    context = SimpleNamespace(setLogLevel=levels.append)
    monkeypatch.setattr(session, "SparkConf", lambda: conf)
    monkeypatch.setattr(session, "SparkContext", SimpleNamespace(_gateway=object(), getOrCreate=lambda _: context))

    session.start({"spark.log.level": "WARN"}, submitted=True)

    assert [level] == levels


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
    """Without a number, Spark fails at the first lost task."""
    assert started == session.retrying(master)


def test_a_jvm_is_not_started_with_a_secret() -> None:
    """Its properties become process arguments that all users can see; its own Java options always do."""
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
