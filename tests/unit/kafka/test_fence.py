"""The fence tells what a person must act on, and is silent about an outage."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from app.errors import NotAllowed, NotUsable
from app.kafka import fence
from app.kafka.fence import KafkaFence
from app.model import Partition

P = Partition("raw", 3)


def fence_that_meets(code: int, monkeypatch: pytest.MonkeyPatch) -> KafkaFence:
    """Return a fence whose producers are answered with an error."""

    def connect(*_: object) -> None:
        raise KafkaException(KafkaError(code))

    monkeypatch.setattr(fence, "connect", connect)
    return KafkaFence({"bootstrap.servers": "127.0.0.1:1"}, "g", 60, "dead")


@pytest.mark.parametrize(
    ("code", "kind", "cure"),
    [
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NotAllowed, "allow Describe and Write"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, NotUsable, "lower transaction.timeout"),
    ],
)
def test_what_a_person_must_act_on_is_raised(
    code: int, kind: type[NotUsable], cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No task could open the partition either, and would not say why."""
    with pytest.raises(kind, match=cure) as raised:
        fence_that_meets(code, monkeypatch).fence([P])

    assert "raw-3" in raised.value.cause


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._FENCED])
def test_an_outage_only_reaches_nobody(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition's next owner shuts the last one out."""
    assert not fence_that_meets(code, monkeypatch).fence([P])
