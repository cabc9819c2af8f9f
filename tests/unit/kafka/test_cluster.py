"""The brokers' versions in librdkafka's log, and the members of our group on two clusters."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from app.cures import PLACEHOLDERS, parts
from app.errors import ForeignMember, Unreachable
from app.kafka import cluster
from app.kafka.admin import AdminConnection
from app.kafka.cluster import KafkaGroup, versions

LINES = [
    "APIVERSION [rdkafka#producer-5] [thrd:a:1/bootstrap]: a:1/bootstrap: Broker API support:",
    "APIVERSION [rdkafka#producer-5] [thrd:a:1/bootstrap]: a:1/bootstrap:   ApiKey Produce (0) Versions 0..13",
    "APIVERSION [rdkafka#producer-5] [thrd:a:1/bootstrap]: a:1/bootstrap:   ApiKey OffsetFetch (9) Versions 1..10",
    "APIVERSION [rdkafka#producer-5] [thrd:a:1/bootstrap]: a:1/bootstrap:  Feature LZ4: Produce (1..32767) supported by broker",
    "APIVERSION [rdkafka#producer-5] [thrd:b:1/2]: b:1/2:   ApiKey Produce (0) Versions 0..11",
    "APIVERSION [rdkafka#producer-5] [thrd:b:1/2]: b:1/2:  Feature LZ4: Produce (1..32767) supported by broker",
]


def test_the_oldest_broker_counts() -> None:
    """A request counts only if every broker supports it."""
    assert {"Produce": 11} == versions(LINES)
    assert {"OffsetFetch": 10, "Produce": 13} == versions(LINES[:4])


@pytest.mark.parametrize("lines", range(4, len(LINES)))
def test_a_list_that_is_not_complete(lines: int) -> None:
    """A broker that connected a moment ago has said a part of what it supports. It does not count."""
    assert {"OffsetFetch": 10, "Produce": 13} == versions(LINES[:lines])


def test_nothing_is_said() -> None:
    """Another librdkafka may log other words. The versions are then unknown."""
    assert {} == versions(["CONNECT: something else"])


def test_members_may_have_moved_the_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """They commit while nothing else does. Started again, the service would go on behind what they have read."""
    tool = SimpleNamespace(members=[SimpleNamespace(client_id="tool", host="/10.0.0.7")])
    monkeypatch.setattr(cluster, "_describe", lambda *_: tool)

    with pytest.raises(ForeignMember, match=r"\(tool on /10.0.0.7\)") as caught:
        KafkaGroup([AdminConnection({"bootstrap.servers": "127.0.0.1:1"})], "g").refuse_foreign_members()

    commands = [each.text for each in parts(caught.value.cure, PLACEHOLDERS) if each.command]
    assert ["winnow offsets show -c winnow.yaml"] == commands


def test_a_cluster_with_a_copy_of_the_offsets_need_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member there disturbs only the copy. The cluster with the authoritative offsets must answer."""
    silent, good = (AdminConnection({"bootstrap.servers": "127.0.0.1:1"}) for _ in range(2))

    def describe(connection: AdminConnection, _group: str) -> None:
        if connection is silent:
            raise Unreachable("its coordinator is away")

    monkeypatch.setattr(cluster, "_describe", describe)

    KafkaGroup([silent, good], "g").refuse_foreign_members()
    with pytest.raises(Unreachable):
        KafkaGroup([good, silent], "g").refuse_foreign_members()
