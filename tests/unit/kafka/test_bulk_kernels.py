"""Where records may pass without a Python object each: only beside a librdkafka that is known."""

from __future__ import annotations

import sys

import pytest

from app.kafka import backend
from app.kafka.backend import PLAIN, best_backend, why_not_bulk


class TestGuards:
    """Where the bulk backend cannot be trusted, the plain one is used, and the reason is logged."""

    def test_nothing_is_missing_here(self) -> None:
        """A machine with the pinned packages uses bulk."""
        assert ("", "bulk") == (why_not_bulk({}), best_backend({}).name)

    def test_numba_is_missing(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        """Without Numba records pass as Python objects, which is said once."""
        backend._problem.cache_clear()
        monkeypatch.setitem(sys.modules, "app.kafka.bulk.consumer", None)

        assert [PLAIN, PLAIN] == [best_backend({}), best_backend({})]
        backend._problem.cache_clear()

        (said,) = caplog.messages
        assert "app.kafka.bulk.consumer" in said

    @pytest.mark.parametrize(
        ("name", "value", "told"),
        [
            ("libversion", lambda: ("2.13.0", 0x020D00FF), "librdkafka 2.13.0"),
            ("libversion", lambda: ("3.0.0", 0x030000FF), "librdkafka 3.0.0"),
            ("version", lambda: 1, "another librdkafka"),
            ("name", lambda _: b"something else", "an unknown form"),
            ("MESSAGE_SIZE", 80, "laid out differently"),
        ],
    )
    def test_another_library(self, monkeypatch: pytest.MonkeyPatch, name: str, value: object, told: str) -> None:
        """A librdkafka or confluent-kafka that is not as expected is not touched."""
        from app.kafka.bulk import native

        monkeypatch.setattr(native, name, value)

        assert told in native.problem()

    def test_tokens_that_are_renewed(self) -> None:
        """Authentication that needs a callback while polling keeps to confluent-kafka's polls."""
        assert "OAUTHBEARER" in why_not_bulk({"sasl.mechanism": "OAUTHBEARER"})
        assert "OAUTHBEARER" in why_not_bulk({"sasl.mechanisms": "OAUTHBEARER"})
