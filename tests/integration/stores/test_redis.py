"""The offset store in Redis, on a real server."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
import redis as client

from app.errors import NotAllowed, Transient
from app.model import Partition, Plugin
from app.offsets.contract import OffsetStore
from app.offsets.failures import StoreOptionError
from app.offsets.faults import OffsetStoreFaults
from app.offsets.redis import RedisOffsets
from app.offsets.registry import open_store
from app.offsets.testing import OffsetStoreContract
from tests.integration.stores.stage import OnServer
from tests.servers.redis import Redis


class OnRedis(OnServer):
    @pytest.fixture(autouse=True)
    def _server(self, redis: Redis) -> None:
        self.server = redis

    def open_store(self, **options: Any) -> OffsetStore:
        return RedisOffsets(self.context, **{"url": f"redis://{self.server.address}", **options})


class TestRedisOffsets(OnRedis, OffsetStoreContract):
    """The contract of offset stores."""

    def test_the_layout(self) -> None:
        """Other tools read a hash for each group and topic, with a plain number for each partition."""
        topic = f"raw-{uuid.uuid4().hex[:8]}"
        with self.store() as store:
            store.save(Partition(topic, 7), 42, "metadata")

        found = client.Redis.from_url(f"redis://{self.server.address}", decode_responses=True).hgetall(
            f"winnow:{self.group}:{topic}"
        )
        assert {"7": "42", "7:metadata": "metadata at=42"} == found

    def test_a_wrong_password_is_named(self, tmp_path: Path) -> None:
        """A wrong password is named as an error for an operator, and the message does not contain it."""
        file = tmp_path / "password"
        file.write_text("hunter2\n")
        opened = self.open_store(username="nobody", password_file=str(file))

        with pytest.raises(NotAllowed) as caught:
            opened.load([Partition("raw", 0)], stable=True)

        assert "hunter2" not in str(caught.value)

    def test_a_key_of_another_kind(self) -> None:
        """A key that something else uses is an error rather than a first start."""
        good, bad = Partition(f"good-{self.group}", 0), Partition(f"bad-{self.group}", 0)
        client.Redis.from_url(f"redis://{self.server.address}").set(f"winnow:{self.group}:{bad.topic}", "mine")
        with self.store() as store:
            store.save(good, 1, "")

            assert store.load([good, bad], stable=True)[bad].corrupt
            with pytest.raises(Transient, match="WRONGTYPE"):
                store.save(bad, 1, "")

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"url": "localhost:6379"}, "url must be a URL, redis://… or rediss://… or unix://…"),
            ({"url": "redis://h", "password": "a", "password.file": "/f"}, "password and password.file are both set"),
            ({"url": "redis://h", "host": "h"}, "no option 'host'"),
        ],
    )
    def test_wrong_options_are_refused(self, options: dict[str, object], problem: str) -> None:
        """Wrong options are rejected before any connection."""
        with pytest.raises(StoreOptionError, match=problem.replace("(", ".")):
            open_store(Plugin("redis", options), self.context)


class TestRedisFaults(OnRedis, OffsetStoreFaults):
    """What happens when Redis fails."""

    def corrupt(self, partition: Partition) -> None:
        connection = client.Redis.from_url(f"redis://{self.server.address}")
        connection.hset(f"winnow:{self.group}:{partition.topic}", str(partition.number), "4x")
