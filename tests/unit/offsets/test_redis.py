"""Which errors of Redis pass by themselves."""

from __future__ import annotations

import pytest
import redis

from app.errors import NotUsable, Unreachable
from app.model import Partition
from app.offsets.contract import StoreContext
from app.offsets.redis import RedisOffsets

RAW = Partition("raw", 0)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("LOADING Redis is loading the dataset in memory", Unreachable),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Unreachable),
        ("CLUSTERDOWN The cluster is down", Unreachable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Unreachable),
        ("OOM command not allowed when used memory > 'maxmemory'.", Unreachable),
        ("NOREPLICAS Not enough good replicas to write.", Unreachable),
        ("MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist", Unreachable),
        ("BUSY Redis is busy running a script.", Unreachable),
        ("ERR unknown command 'HMGET'", NotUsable),
    ],
)
def test_an_outage_is_no_mistake(answer: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage is waited for; the others need an operator. The client removes some codes from the text."""
    store = RedisOffsets(StoreContext("group", {}), url="redis://nowhere")

    def refuse(*_: object) -> None:
        raise redis.connection.DefaultParser.parse_error(answer)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(redis.Redis, "hmget", refuse)

    with pytest.raises(error, match=answer.partition(" ")[2]):
        store.load([RAW], stable=True)
