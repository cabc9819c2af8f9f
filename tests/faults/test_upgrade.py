"""The service continues after a real earlier release instead of its recording, and takes over from it as it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.embedded.broker import Cluster
from tests import upgrade
from tests.conftest import Topics
from tests.independent import Feeder, amiss, produce, read
from tests.integration.service import Winnow, WinnowOnSpark
from tests.support.waiting import until
from tests.upgrade import LAST, PARTITIONS, RELEASES, Release, require_it_goes_on


@pytest.mark.parametrize("release", [pytest.param(each, marks=each.runs, id=str(each)) for each in RELEASES])
def test_it_goes_on_after_an_earlier_release(broker: Cluster, topics: Topics, tmp_path: Path, release: Release) -> None:
    """What a release writes today equals its recording."""
    stage = upgrade.staged(broker.bootstrap, topics)
    produce(broker.bootstrap, stage.source, upgrade.given())
    config = upgrade.settings_of(release, stage)
    old = upgrade.unpacked(release, tmp_path / release.version)
    with WinnowOnSpark(config, tmp_path, "--until-end", environment=old) as earlier:
        assert 0 == earlier.code()
    require_it_goes_on(release, stage, tmp_path)


@LAST.runs
def test_it_takes_over_from_the_last_release_and_gives_back(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Each ends by itself once the other one, of a larger generation, has all. Nothing is lost or duplicated."""
    stage = upgrade.staged(broker.bootstrap, topics)
    config = upgrade.settings_of(LAST, stage)
    old = upgrade.unpacked(LAST, tmp_path / LAST.version)

    def flows() -> None:
        before = len(read(broker.bootstrap, stage.sink))
        until(lambda: len(read(broker.bootstrap, stage.sink)) > before + 500, "a flow")

    with (
        Feeder(broker.bootstrap, stage.source, PARTITIONS, 100) as feeder,
        WinnowOnSpark(config, tmp_path, environment=old) as earlier,
    ):
        flows()
        with Winnow(config | {"generation": 1}, tmp_path) as later:
            assert 0 == earlier.code()
            flows()
            with WinnowOnSpark(config | {"generation": 2}, tmp_path, environment=old) as again:
                assert 0 == later.code()
                flows()
                feeder.stop()
                until(lambda: len(read(broker.bootstrap, stage.sink)) >= feeder.written.total(), "the end")
                assert 0 == again.stop()

    assert {} == amiss(feeder.written, read(broker.bootstrap, stage.sink))
    for ended, generation in ((earlier, 1), (later, 2)):
        (stopped,) = ended.logged("stopped")
        assert stopped["cause"].startswith(f"taken over by the service of generation {generation} on ")
