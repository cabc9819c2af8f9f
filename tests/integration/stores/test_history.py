"""`winnow offsets history` on a real HBase and a real Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from app.cli import main
from app.config import Config
from app.embedded.broker import Cluster
from app.errors import Transient, Unreachable
from app.model import CommittedOffset, Partition, Plugin
from app.offsets import hbase as module
from app.offsets.contract import StoreContext
from app.offsets.metadata import Counts, OffsetMetadata
from app.offsets.registry import open_store
from app.operate import stores
from app.operate.running import StoppedService
from app.start import clients
from tests.conftest import Topics
from tests.independent import Written, line, produce
from tests.integration.in_process import Running
from tests.integration.service import settings
from tests.servers.hbase import HBaseThrift
from tests.support.waiting import until, without


class MirroredGroup:
    """A group with its offsets in Kafka and a mirror in HBase."""

    def __init__(self, broker: Cluster, topics: Topics, hbase: HBaseThrift, folder: Path) -> None:
        self.source, self.group = topics("raw", 2), topics("clean")
        dead = topics("dead")
        self.config = settings(
            broker.bootstrap,
            group=self.group,
            sources=[self.source],
            sink=self.group,
            dead=dead,
            commit_interval="50ms",
        )
        mirror = {"name": "hbase", "host": "127.0.0.1", "port": hbase.port}
        self.file = folder / "winnow.yaml"
        self.file.write_text(yaml.safe_dump(self.config | {"offsets": {"mirrors": [mirror]}}))
        context = StoreContext(self.group, {"bootstrap.servers": broker.bootstrap})
        self.kafka = open_store(Plugin("kafka"), context)
        self.hbase = open_store(
            Plugin("hbase", {key: value for key, value in mirror.items() if key != "name"}), context
        )

    def commit(self, partition: int, offset: int, topic_id: str = "") -> None:
        metadata = str(OffsetMetadata(topic_id, 0, Counts(offset))) if topic_id else ""
        for store in (self.kafka, self.hbase):
            save = partial(store.save, Partition(self.source, partition), offset, metadata)
            without(Transient, save, "the group's coordinator, which a new broker may still be electing")

    def committed(self) -> dict[int, CommittedOffset]:
        load = partial(self.kafka.load, [Partition(self.source, number) for number in range(2)], stable=True)
        return {partition.number: at for partition, at in without(Unreachable, load, "the offsets").items()}

    def offsets(self) -> dict[int, int]:
        return {number: at.offset for number, at in self.committed().items()}

    def command(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["offsets", "history", "-c", str(self.file), *arguments])


@pytest.fixture
def group(
    broker: Cluster, topics: Topics, hbase: HBaseThrift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MirroredGroup]:
    """Return a group whose mirror remembers each commit, not one a minute."""
    monkeypatch.setattr(module, "HISTORY_SECONDS", 0.0)
    made = MirroredGroup(broker, topics, hbase, tmp_path)
    with closing(made.kafka), closing(made.hbase):
        yield made


@pytest.mark.usefixtures("brief_looks")
def test_the_group_goes_back_to_an_earlier_time(group: MirroredGroup) -> None:
    """
    The mirror's history is listed, newest first. A restore sets the store's offsets; with --dry-run it only reports
    them.

    The topic's id is stored with restored offsets, so a partition added later is new to the group.
    """
    for partition, offset in [(0, 10), (1, 20), (0, 30)]:
        group.commit(partition, offset)

    listed = group.command()
    assert 0 == listed.exit_code, listed.output
    topic, *entries = listed.output.splitlines()
    assert group.source == topic
    assert ["0=30 1=20", "0=10 1=20", "0=10"] == [entry.split("  ")[-1] for entry in entries]
    then = re.findall(r"\S+Z", listed.output)[1]

    foretold = group.command("--restore", then, "--dry-run")
    assert (0, f"to move  {group.source}-0: 30 → 10") == (foretold.exit_code, foretold.output.splitlines()[0])
    assert CommittedOffset(30) == group.committed()[0]

    done = group.command("--restore", then)
    assert 0 == done.exit_code, done.output
    assert {0: 10, 1: 20} == group.offsets()
    (topic_id,) = {
        each.id
        for each in clients(Config.model_validate(group.config)).topics.source_topics([group.source], None, ()).values()
    }
    assert topic_id == OffsetMetadata.parse(group.committed()[0].metadata).topic_id


def test_a_running_service_is_noticed(broker: Cluster, group: MirroredGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next commit would overwrite what a restore sets, so nothing is set, although the service is idle."""

    def next_commit(_seconds: float) -> None:
        """Wait for it: within the three seconds of a look, a busy machine may not commit."""
        before = group.committed()
        until(lambda: group.committed() != before, "the next commit")

    group.commit(0, 1)
    then = re.findall(r"\S+Z", group.command().output)[0]
    produce(broker.bootstrap, group.source, [Written(line(n)) for n in range(3)])
    with Running(group.config):
        until(lambda: group.offsets().get(0) == 3, "the lines")
        monkeypatch.setattr(stores, "StoppedService", partial(StoppedService, sleep=next_commit))
        refused = group.command("--restore", then)
        kept = group.offsets()

    assert (3, 3) == (refused.exit_code, kept[0])
    assert f"is running: it committed {group.source}-" in refused.stderr


def test_the_history_of_a_deleted_topic(group: MirroredGroup) -> None:
    """Offsets of a deleted topic belong to other records, so none is restored."""
    group.commit(0, 10, "of-a-deleted-topic")
    group.commit(0, 30)

    then = re.findall(r"\S+Z", group.command().output)[1]
    done = group.command("--restore", then)

    assert 1 == done.exit_code
    assert f"{group.source}-0@10: the topic was deleted and recreated" in done.stderr
    assert {0: 30} == group.offsets()


def test_no_history(broker: Cluster, topics: Topics, hbase: HBaseThrift, tmp_path: Path) -> None:
    """A store without a history, a time before the history and an invalid time are each named."""
    group = MirroredGroup(broker, topics, hbase, tmp_path)
    with closing(group.kafka), closing(group.hbase):
        group.commit(0, 10)

        assert "kafka keeps no history" in group.command("--store", "kafka").output
        assert "does not go back to 2001" in group.command("--restore", "2001-01-01").output
        assert "'yesterday' is not a time" in group.command("--restore", "yesterday").output
        assert CommittedOffset(10) == group.committed()[0]
