"""The offset store in Redis, on a real server."""

from __future__ import annotations

import uuid

import pytest
import redis as client

from app.model import Partition
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.faults import OffsetStoreFaults
from app.offsets.redis import RedisOffsets
from app.offsets.testing import OffsetStoreContract
from tests.servers.redis import Redis


class OnRedis:
    @pytest.fixture(autouse=True)
    def _server(self, redis: Redis) -> None:
        self.server = redis
        self.group = f"group-{uuid.uuid4().hex[:8]}"

    def open_store(self) -> OffsetStore:
        return RedisOffsets(StoreContext(self.group, {}), url=self.server.url)


class TestRedisOffsets(OnRedis, OffsetStoreContract):
    """The contract of offset stores."""

    def test_the_layout(self) -> None:
        """Other tools read a hash for each group and topic, in which each partition has its offset as a plain number."""
        topic = f"raw-{uuid.uuid4().hex[:8]}"
        with self.store() as store:
            store.save(Partition(topic, 7), 42, "metadata")

        found = client.Redis.from_url(self.server.url, decode_responses=True).hgetall(f"winnow:{self.group}:{topic}")
        assert {"7": "42", "7:metadata": "metadata"} == found


class TestRedisFaults(OnRedis, OffsetStoreFaults):
    """What happens when Redis fails."""

    def stop_server(self) -> None:
        self.server.kill()

    def start_server(self) -> None:
        self.server.start()

    def freeze_server(self) -> None:
        self.server.freeze()

    def thaw_server(self) -> None:
        self.server.thaw()

    def corrupt(self, partition: Partition) -> None:
        connection = client.Redis.from_url(self.server.url)
        connection.hset(f"winnow:{self.group}:{partition.topic}", str(partition.number), "4x")
