"""`winnow offsets migrate` between real stores."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.embedded.broker import Cluster
from app.model import Partition
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.redis import RedisOffsets
from tests.conftest import Topics
from tests.independent import commit, committed
from tests.integration.stores.stage import StoreStage
from tests.servers.redis import Redis


class Migration:
    """A group whose offsets are in Redis, and a configuration whose store is Redis."""

    def __init__(self, broker: Cluster, topics: Topics, redis: Redis, folder: Path) -> None:
        self.stage = StoreStage(broker, topics, {"name": "redis", "url": redis.url}, commit_interval="50ms")
        self.stage.write(0, 0, 9)
        self.stage.write(1, 0, 9)
        self.file = folder / "winnow.yaml"
        self.file.write_text(json.dumps(self.stage.config))
        self.bootstrap, self.group, self.source = broker.bootstrap, self.stage.sink, self.stage.source
        self.redis: OffsetStore = RedisOffsets(StoreContext(self.group, {}), url=redis.url)

    def save(self, *offsets: int) -> None:
        for number, offset in enumerate(offsets):
            self.redis.reset(Partition(self.source, number), offset, f"metadata {offset}")

    def run(self, *arguments: str, start: str = "redis", end: str = "kafka") -> Result:
        command = ["offsets", "migrate", "-c", str(self.file), "--from", start, "--to", end, *arguments]
        return CliRunner().invoke(main, command)

    def in_kafka(self) -> dict[int, int]:
        return {place[1]: offset for place, offset in committed(self.bootstrap, self.group, self.source).items()}


@pytest.fixture
def migration(broker: Cluster, topics: Topics, redis: Redis, tmp_path: Path, brief_looks: None) -> Migration:
    return Migration(broker, topics, redis, tmp_path)


def test_a_group_moves(migration: Migration) -> None:
    """A dry run shows what would be moved. The real run moves it, and a second one finds nothing to move."""
    migration.save(4, 7)

    dry = migration.run("--dry-run")
    assert {} == migration.in_kafka()
    moved = migration.run()
    again = migration.run()

    first, second = Partition(migration.source, 0), Partition(migration.source, 1)
    assert [0, 0, 0] == [dry.exit_code, moved.exit_code, again.exit_code], dry.output + moved.output
    assert f"to move  {first}: nothing → 4\nto move  {second}: nothing → 7\n" == dry.stdout
    assert f"moved    {first}: nothing → 4\nmoved    {second}: nothing → 7\n" == moved.stdout
    assert f"same     {first}: 4 → 4\nsame     {second}: 7 → 7\n" == again.stdout
    assert {0: 4, 1: 7} == migration.in_kafka()


def test_an_offset_goes_back_only_by_force(migration: Migration) -> None:
    """Moving an offset back would cleanse records again, so it requires --force."""
    migration.save(4, 7)
    commit(migration.bootstrap, migration.group, {(migration.source, 0): 6, (migration.source, 1): 6})

    dry, refused = migration.run("--dry-run"), migration.run()
    kept = migration.in_kafka()
    forced = migration.run("--force")

    assert [1, 1, 0] == [dry.exit_code, refused.exit_code, forced.exit_code]
    assert f"refused  {migration.source}-0: 6 → 4: it would go back; use --force to allow that" in dry.stdout
    assert f"refused  {migration.source}-0: 6 → 4: it would go back; use --force to allow that" in refused.stdout
    assert {0: 6, 1: 7} == kept
    assert {0: 4, 1: 7} == migration.in_kafka()


def test_a_store_on_the_command_line(migration: Migration, tmp_path: Path) -> None:
    """A store on the command line that is not configured is described as in the configuration."""
    migration.save(4, 7)
    files = json.dumps({"name": "files", "url": f"file://{tmp_path}"})

    there = migration.run(end=files)
    back = migration.run(start=files, end="kafka")

    assert [0, 0] == [there.exit_code, back.exit_code], there.output + back.output
    assert {0: 4, 1: 7} == migration.in_kafka()


@pytest.mark.parametrize(
    ("start", "end", "answer"),
    [
        ("redsi", "kafka", "--from: no offset store is called 'redsi'; did you mean 'redis'?"),
        ("redis", "zookeeper", "--to: offset store zookeeper: option 'hosts' is missing"),
        ("redis", "none", "--to: none keeps nothing between runs"),
    ],
)
def test_a_wrong_store_is_named(migration: Migration, start: str, end: str, answer: str) -> None:
    """Wrong usage exits with 2 before any connection."""
    found = migration.run(start=start, end=end)

    assert 2 == found.exit_code
    assert answer in found.stderr


def test_a_running_service_is_noticed(migration: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration stops if offsets move meanwhile: they would be overwritten by the next commit, or lost."""
    migration.save(4, 7)
    load = RedisOffsets.load

    def load_and_work(store: RedisOffsets, partitions: Collection[Partition], **how: bool) -> Any:
        found = load(store, partitions, **how)
        migration.save(5, 7)
        return found

    monkeypatch.setattr(RedisOffsets, "load", load_and_work)
    found = migration.run()

    assert 3 == found.exit_code
    assert f"the service is running: it committed {migration.source}-0 during the check" in found.stderr
    assert {} == migration.in_kafka()


def test_an_offset_that_cannot_be_read_is_not_moved(migration: Migration, redis: Redis) -> None:
    """Corrupt content ends the migration before anything changes."""
    import redis as client

    migration.save(4, 7)
    client.Redis.from_url(redis.url).hset(f"winnow:{migration.group}:{migration.source}", "1", "x")

    found = migration.run()

    assert 1 == found.exit_code, found.stderr
    assert "not an offset" in found.stderr
    assert {} == migration.in_kafka()
