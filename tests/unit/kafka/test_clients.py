"""Whether a task can make its clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from app.errors import Transient, Unreachable
from app.kafka import fence, settings
from app.kafka.backend import PLAIN
from app.kafka.clients import TaskClients
from app.model import CommittedOffset, Guarantee, Owner, Partition
from app.offsets.contract import StoreContext
from app.offsets.metadata import OffsetMetadata
from app.offsets.none import NoOffsets
from tests.fakes import FakeKafka, FakeOffsets, make_task_config
from tests.integration.certificates import Authority

MAKERS: dict[str, Callable[[TaskClients], object]] = {
    "consumer": TaskClients.consumer,
    "offsets": TaskClients.offsets,
    "writer": lambda clients: clients.writer(Partition("raw", 0), NoOffsets(StoreContext("group", {}))),
}


@pytest.mark.parametrize("made", MAKERS)
def test_a_key_that_does_not_match_yet_is_an_outage(made: str, tmp_path: Path) -> None:
    """A task may begin, or a lane reopen, between the two writes that replace a certificate and its key."""
    authority = Authority(tmp_path, "ca")
    files = {"ssl.certificate.location": str(authority.sign("new")), "ssl.key.location": str(authority.sign("old"))}
    kafka = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "ssl"} | files
    config = make_task_config(Guarantee.AT_LEAST_ONCE, kafka=kafka)

    with (
        TaskClients(config, PLAIN) as clients,
        pytest.raises(Unreachable, match="key values mismatch"),
    ):
        MAKERS[made](clients)


class TestAnEarlierRun:
    """At least once, a run that starts fences an earlier one, which may have been exactly once."""

    P, EARLIER, ME = Partition("raw", 0), Owner(1, "a", "clean"), Owner(2, "b", "clean")

    def owner_after_a_start(self, code: int, monkeypatch: pytest.MonkeyPatch, timeout: float = 60.0) -> Owner:
        """Start in a partition of the earlier run whose fence meets an error; return whose its offset is."""
        kafka = FakeKafka({self.P: []})
        kafka.committed[self.P] = CommittedOffset(5, str(OffsetMetadata(owner=self.EARLIER)))
        config = make_task_config(Guarantee.AT_LEAST_ONCE, owner=self.ME, transaction_seconds=timeout)

        def connect(*_: object) -> None:
            raise KafkaException(KafkaError(code))

        monkeypatch.setattr(fence, "connect", connect)
        with TaskClients(config, PLAIN) as clients:
            writer = clients.writer(self.P, FakeOffsets(kafka))
            writer.settle(kafka.committed[self.P])
            writer.commit(5, str(OffsetMetadata(owner=self.ME)))
            writer.discard()
        return OffsetMetadata.parse(kafka.committed[self.P].metadata).owner

    def test_one_that_cannot_be_fenced_is_fenced_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A broker may deny access for a moment. The earlier run would go on writing the same lines."""
        with pytest.raises(Transient, match="raw-0"):
            self.owner_after_a_start(KafkaError._AUTHENTICATION, monkeypatch)  # exported with an underscore only

    def test_no_transaction_timeout_is_too_long_to_fence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody looks whether the brokers allow it: at least once it means nothing."""
        found: list[float] = []

        def fencing(_group: str, seconds: float, _partition: Partition) -> dict[str, str]:
            found.append(seconds)
            return {"transactional.id": "t"}

        monkeypatch.setattr(settings, "fencing", fencing)
        self.owner_after_a_start(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, monkeypatch, timeout=7200)

        assert found == [10.0]

    def test_without_the_right_to_its_ids_there_was_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """At least once does not need that right, and exactly once does not start without it."""
        code = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

        assert self.ME == self.owner_after_a_start(code, monkeypatch)
