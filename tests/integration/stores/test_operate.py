"""`winnow offsets reset` and `show` with each offset store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli import main
from app.embedded.broker import Cluster
from app.offsets.metadata import OffsetMetadata
from tests.conftest import Topics
from tests.independent import read
from tests.integration.stores.stage import STORES, StoreStage
from tests.support.configuration import file_of


@pytest.mark.usefixtures("brief_looks")
@pytest.mark.parametrize("store", STORES, indirect=True)
def test_every_store(broker: Cluster, topics: Topics, tmp_path: Path, store: dict[str, Any]) -> None:
    """With every store, the service continues from an offset that was set, and the store keeps its metadata."""
    stage = StoreStage(broker, topics, store, commit_interval="100ms")
    for number in range(2):
        stage.write(number, 0, 9)
    assert 0 == stage.run()
    file = file_of(stage.config, tmp_path)

    done = CliRunner().invoke(main, ["offsets", "reset", "-c", str(file), "--to-offset", "5"])
    shown = CliRunner().invoke(main, ["offsets", "show", "-c", str(file), "--json"])

    assert 0 == done.exit_code, done.output
    assert {0: 5, 1: 5} == stage.remembered()
    found = json.loads(shown.stdout)["partitions"]
    assert [5, 5] == [OffsetMetadata.parse(each["metadata"]).since for each in found]
    assert 0 == stage.run()
    assert {0: 9, 1: 9} == stage.remembered()
    assert 2 * (9 + 4) == len(read(broker.bootstrap, stage.sink))
