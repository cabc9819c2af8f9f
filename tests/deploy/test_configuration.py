"""The deployed configurations, as the product reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from app import config
from app.config import Config
from tests.deploy.chart import render
from tests.deploy.conftest import ROOT
from tests.support.docs import fenced


def loaded(text: str, folder: Path) -> Config:
    """Read a configuration as the command would."""
    file = folder / "winnow.yaml"
    file.write_text(text, "utf-8")
    return config.load(file, environ={})


@pytest.mark.parametrize("where", ["compose", "k8s"])
def test_deployed_configuration_is_valid(where: str, tmp_path: Path, configuration: str) -> None:
    """The deployed configuration is valid: exactly once, from the beginning, with the access-log parser."""
    text = {
        "compose": (ROOT / "docker/winnow.yaml").read_text("utf-8"),
        "k8s": configuration,
    }[where]
    found = loaded(text, tmp_path)
    assert found.delivery_guarantee.value == "exactly-once"
    assert found.starting_offsets == "earliest"
    assert found.parser.name == "idc-access-log"


def test_cluster_configuration_leaves_spark_to_the_application(tmp_path: Path, configuration: str) -> None:
    """In the cluster the configuration does not set where Spark runs."""
    assert loaded(configuration, tmp_path).spark == {}


def rendered(values: dict[str, Any], folder: Path) -> Config:
    """Read the configuration that the chart renders from these values."""
    return loaded(yaml.safe_load(render(values)["configmap.yaml"])["data"]["winnow.yaml"], folder)


def test_null_takes_a_default_of_the_chart_away(tmp_path: Path) -> None:
    """The page's example leaves no topic beside the pattern, and no SASL beside TLS."""
    examples = map(yaml.safe_load, fenced((ROOT / "docs/kubernetes.md").read_text("utf-8"), "yaml"))
    (values,) = (each for each in examples if each.keys() == {"config"})
    found = rendered(values, tmp_path)
    assert found.source.topics == ()
    assert found.source.topics_pattern == "raw-logs-.*"
    assert found.kafka.keys() == {"bootstrap.servers", "security.protocol", "ssl.ca.location"}


def test_the_charts_port_may_be_written_again(tmp_path: Path) -> None:
    """The chart sets the port itself, and a key in both forms would be an error."""
    assert rendered({"config": {"http.port": 9100}, "http": {"port": 9100}}, tmp_path).http.port == 9100
