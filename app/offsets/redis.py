"""
A store in Redis: a hash for each group and topic, with two fields per partition.

    HGETALL winnow:GROUP:TOPIC   →   0 = 1042   0:metadata = winnow/2 … at=1042   1 = 977   1:metadata = …

A script on the server compares and stores atomically, so two writers cannot move an offset back.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.errors import NotAllowed, NotUsable, Unreachable
from app.model import CommittedOffset, Partition, numbers_by_topic
from app.offsets.contract import StoreContext
from app.offsets.failures import StoreOptionError, refuse_to_go_back, saving, stored_offset, tied
from app.offsets.options import Options

SECONDS = 4.0
"""The timeout of a connection or an answer. Calls are tried twice, because the server may have closed an idle one."""
SCHEMES = ("redis", "rediss", "unix")
UNAVAILABLE = (
    redis.exceptions.ClusterDownError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
    redis.OutOfMemoryError,
)
"""The errors of a server that may soon work again. The client has removed their codes from the text."""
CODES = re.compile(r"(^|: -)(BUSY|MISCONF|NOREPLICAS|OOM|READONLY)\b")
"""Those that the text begins with or, if Redis is older than 7 and a command of the script failed, quotes."""

# Lua's numbers are exact only up to 2^53, so offsets are compared as text: the longer one is larger.
SAVE = """
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if stored then
  if not string.find(stored, '^%d+$') then return stored end
  local digits = string.gsub(stored, '^0+(%d)', '%1')
  if #digits > #ARGV[2] or (#digits == #ARGV[2] and digits > ARGV[2]) then return stored end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2], ARGV[1] .. ':metadata', ARGV[3])
return false
"""


class RedisOffsets:
    """The offsets of a group in Redis or a compatible server; the URL may hold the password."""

    transactional = False

    def __init__(
        self,
        context: StoreContext,
        *,
        url: str,
        username: str | None = None,
        password: str | None = None,
        password_file: str | None = None,
    ) -> None:
        options = Options()
        address = options.url("url", url, SCHEMES)
        user = None if username is None else options.text("username", username)
        secret = options.secret("password", password, password_file)
        options.raise_problems()
        self._group = context.group
        self._client = redis.Redis.from_url(
            address,
            **({"password": secret} if secret else {}),
            **({"username": user} if user else {}),
            protocol=2,  # the client's default, 3, is refused by Redis 5 and by proxies; the URL may name it
            decode_responses=True,
            encoding_errors="replace",
            socket_timeout=SECONDS,
            socket_connect_timeout=SECONDS,
            retry=Retry(NoBackoff(), 1),
        )
        pool = self._client.connection_pool
        try:
            pool.connection_class(**pool.connection_kwargs)  # connects to nothing
        except (TypeError, redis.RedisError) as error:
            raise StoreOptionError(f"url has a wrong parameter after its ?: {error}") from error
        self._save = self._client.register_script(SAVE)

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:  # noqa: ARG002  # outside Kafka's transactions, every offset is stable
        found: dict[Partition, CommittedOffset] = {}
        for topic, wanted in numbers_by_topic(partitions).items():
            with self._asking(f"reading the offsets of {topic}"):
                fields = [field for number in wanted for field in _fields(number)]
                values = iter(self._values(topic, fields))
            for number, offset, metadata in zip(wanted, values, values, strict=True):
                if offset is not None:
                    place = f"field {number} of the hash {self._key(topic)} in Redis"
                    found[Partition(topic, number)] = stored_offset(offset, metadata or "", place)
        return found

    def _values(self, topic: str, fields: list[str]) -> list[str | None]:
        try:
            values: Any = self._client.hmget(self._key(topic), fields)
        except redis.ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            values = [str(error)] * len(fields)
        return list(values)

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        key, number = self._key(partition.topic), str(partition.number)
        with saving(partition, offset), self._asking(f"storing the offset of {partition}"):
            stored = self._save(keys=[key], args=[number, str(offset), tied(offset, metadata)])
        if stored is not None:
            place = f"field {number} of the hash {key} in Redis"
            refuse_to_go_back(partition, stored_offset(str(stored), "", place), offset)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        field, beside = _fields(partition.number)
        with saving(partition, offset), self._asking(f"storing the offset of {partition}"):
            self._client.hset(self._key(partition.topic), mapping={field: str(offset), beside: tied(offset, metadata)})

    def close(self) -> None:
        self._client.close()

    def _key(self, topic: str) -> str:
        return f"winnow:{self._group}:{topic}"

    @contextlib.contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (
            redis.AuthenticationError,
            redis.exceptions.AuthorizationError,
            redis.exceptions.NoPermissionError,
        ) as error:
            cure = "check the username, password and permissions of the offset store"
            raise NotAllowed(f"Redis denied access while {doing}: {error}", cure) from error
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            raise Unreachable(f"Redis is not responding while {doing}: {error}") from error
        except redis.exceptions.AskError as error:
            said = f"Redis refers to another server of its cluster while {doing}: {error}"
            raise NotUsable(said, "use a server outside of a Redis Cluster, which is not supported") from error
        except redis.RedisError as error:
            if isinstance(error, UNAVAILABLE) or CODES.search(str(error)):
                # After a fail-over, the address may lead elsewhere.
                self._client.connection_pool.disconnect(inuse_connections=False)
                raise Unreachable(f"Redis is unavailable while {doing}: {error}") from error
            raise NotUsable(f"Redis rejected the request while {doing}: {error}", "check the offset store") from error


def _fields(number: int) -> tuple[str, str]:
    """Return a partition's two fields: offset and metadata."""
    return str(number), f"{number}:metadata"
