"""
Source and sink on two clusters, under kills: `python -m tests.chaos.clusters [--seconds N]`.

Killed are Python workers, the driver and the brokers of either cluster; then each cluster is away for a minute. The
service delivers exactly once, so every anomaly counts. The copies of the offsets on the source's cluster must catch up,
too. Exits with 1 if there is an anomaly.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import click

from app.embedded.broker import Broker
from app.errors import NotUsable, Unreachable
from app.kafka.offsets import KafkaGroupOffsets
from app.model import Partition
from app.offsets.contract import StoreContext
from tests.chaos.brokers import SHORT_LIVED
from tests.chaos.checker import judge
from tests.chaos.cluster import NONE, SMALL, System, until
from tests.chaos.grouped import History
from tests.chaos.history import Recorder, events
from tests.chaos.load import Load, fresh_name
from tests.chaos.nemesis import Nemesis, schedule
from tests.chaos.readers import Reader
from tests.chaos.run import BRIEF, STEADY_SECONDS, conclude, stop
from tests.chaos.work import HONEST
from tests.independent import ends

PROCESSES = ["worker killed"] * 3 + ["driver killed"]
CLUSTERS = ("source", "sink")
BROKERS = [f"{cluster} killed" for cluster in CLUSTERS]
AWAY = [f"{cluster} away" for cluster in CLUSTERS]
BRIEFLY, AWAY_SECONDS = (0.1, 3.0), 60.0
PATIENCE = 300.0
"""How long the first lines may take, and the last; on a busy machine a restarted driver alone takes a minute."""
PLACEHOLDER = "{topic}.winnow-offsets"


class TwoClusters(System):
    """The source on a cluster of its own; output and offsets where they always are."""

    def __init__(self, folder: Path, name: str, recorder: Recorder) -> None:
        """Prepare; nothing starts yet."""
        super().__init__(SMALL, folder, HONEST, name, recorder=recorder)
        self.edge = Broker(java=SHORT_LIVED)

    def __enter__(self) -> Self:
        """Start the source's cluster, then everything else."""
        self._stack.enter_context(self.edge)
        return super().__enter__()

    def _create(self, role: str, topic: str, config: Mapping[str, str] | None = None) -> None:
        if role != "source":
            super()._create(role, topic, config)
            return
        self.edge.create_topic(topic, self.size.partitions, {"retention.ms": "-1"})

    def _known_everywhere(self) -> bool:
        return set(self.roles.values()) <= self.broker.admin().list_topics(timeout=10).topics.keys()

    def settings(self, spark: Mapping[str, object] = NONE) -> dict[str, Any]:
        """Return the configuration of a service from the one cluster to the other."""
        usual = super().settings(spark)
        usual["sink"]["kafka"] = usual["kafka"]
        return usual | {"kafka": {"bootstrap.servers": self.edge.bootstrap}}

    def cluster(self, name: str) -> Broker:
        """Return the brokers of `source` or `sink`."""
        return self.edge if name == "source" else self.broker

    def lag(self, cluster: str) -> int:
        """Return how many source offsets the group on a cluster has not committed; -1 where that does not answer."""
        placeholder = PLACEHOLDER if cluster == "sink" else ""
        kafka = {"bootstrap.servers": self.cluster(cluster).bootstrap}
        with contextlib.closing(KafkaGroupOffsets(StoreContext(self.name, kafka, placeholder=placeholder))) as opened:
            wanted = {Partition(*place): end for place, end in ends(self.edge.bootstrap, self.source).items()}
            try:
                found = opened.load(wanted, stable=True)
            except (Unreachable, NotUsable):
                return -1
        return sum(end - (found[each].offset if each in found else 0) for each, end in wanted.items())


def run(seed: int, seconds: float, folder: Path) -> Path:
    """Run the service between two clusters under faults, and return the path of the history."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        Recorder(folder / "history.jsonl.gz") as recorder,
        TwoClusters(folder, fresh_name(), recorder) as system,
    ):
        recorder.record("setup", seed=seed, arm=HONEST, partitions=SMALL.partitions, brokers=2, workers=0)
        rng, where = random.Random(seed), system.broker.bootstrap
        edge, partitions = system.edge.bootstrap, SMALL.partitions
        load = Load(edge, system.source, partitions=partitions, per_second=500, recorder=recorder, rng=rng)
        with Reader("first", where, system.roles, recorder) as reader, load:
            assert until(lambda: bool(reader.lines), PATIENCE), f"nothing is written: {system.driver.noise[-10:]}"
            _kill(system, load, rng, time.monotonic() + seconds)
            time.sleep(STEADY_SECONDS)
            load.stop()
            drained = until(lambda: _drained(system), PATIENCE)
            recorder.record("drained" if drained else "not drained")
            stop(system, recorder)
        conclude(system, recorder)
    return recorder.path


def _drained(system: TwoClusters) -> bool:
    system.revive()
    return system.lag("sink") == 0 == system.lag("source")


def _kill(system: TwoClusters, load: Load, rng: random.Random, deadline: float) -> None:
    nemesis = Nemesis(system, load, rng)
    for name in schedule(PROCESSES + BROKERS, rng):
        if time.monotonic() > deadline:
            break
        if name in BROKERS:
            _take_away(system, name, rng.uniform(*BRIEFLY))
        else:
            nemesis.strike(name)
        time.sleep(rng.uniform(*BRIEF))
    for name in AWAY:
        _take_away(system, name, AWAY_SECONDS)
        time.sleep(rng.uniform(*BRIEF))


def _take_away(system: TwoClusters, name: str, seconds: float) -> None:
    """Kill the brokers of a cluster, and start them again after so many seconds."""
    cluster, _, _ = name.partition(" ")
    began = system.recorder.now
    system.cluster(cluster).kill()
    system.recorder.record("fault", name=name, target=cluster, state=system.state(), began=began)
    time.sleep(seconds)
    system.cluster(cluster).start()
    system.recorder.record("healed", name=name, target=cluster)


@click.command()
@click.option("--seconds", default=120.0, show_default=True, help="How long processes are killed; two outages follow.")
@click.option("--seed", default=1, show_default=True, help="Decides the order of the kills, their targets and pauses.")
def main(seconds: float, seed: int) -> None:
    """Kill at random moments with source and sink on two clusters, and let each be away for a minute."""
    path = run(seed, seconds, Path(tempfile.mkdtemp(prefix="winnow-chaos-clusters-")))
    recorded = list(events(path))
    history = History.of(recorded)
    drained = any(event["kind"] == "drained" for event in recorded)
    found = [each for each in judge(history) if each.times]
    faults = ", ".join(f"{times} x {name}" for name, times in Counter(each.name for each in history.faults).items())
    said = ", ".join(f"{each.times} {each.name}" for each in found) or "no anomaly"
    lines = sum(count for _, count in history.writes)
    click.echo(f"two clusters: {lines} lines; {faults}; {said}{'' if drained else '; NOT DRAINED'} ({path})")
    sys.exit(bool(found) or not drained)


if __name__ == "__main__":
    main()
