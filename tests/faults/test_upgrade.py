"""The service continues after a real Winnow 0.1.0 instead of its recording."""

from __future__ import annotations

from pathlib import Path

from app.embedded.broker import Cluster
from tests import upgrade
from tests.conftest import Topics
from tests.independent import produce
from tests.integration.service import WinnowOnSpark
from tests.upgrade import FIRST_VERSION_RUNS, PARTITIONS, require_it_goes_on


@FIRST_VERSION_RUNS
def test_it_goes_on_after_the_first_version(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """What 0.1.0 writes today equals its recording."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead", PARTITIONS)
    produce(broker.bootstrap, source, upgrade.given())
    config = upgrade.settings_of(broker.bootstrap, sink, source, sink, dead)
    old = upgrade.unpacked(tmp_path / "0.1.0")
    with WinnowOnSpark(config, tmp_path, "--until-end", environment=old) as first:
        assert 0 == first.code()
    require_it_goes_on(broker.bootstrap, tmp_path, source, sink, dead)
