"""The deployed configurations, as the product reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import config
from app.config import Config
from tests.deploy.conftest import ROOT


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
