"""The bulk backend is used only with a supported librdkafka."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from app.kafka import backend
from app.kafka.backend import PLAIN, best_backend, expected_backend, why_not_bulk


@pytest.fixture
def unknown() -> Iterator[None]:
    """Forget what is known about the kernels of this machine, before and after the test."""
    backend._problem_of.cache_clear()
    yield
    backend._problem_of.cache_clear()


class TestGuards:
    """If the bulk backend cannot be trusted, the plain one is used, and the reason is logged."""

    def test_nothing_is_missing_here(self) -> None:
        """A machine with the pinned packages uses the bulk backend."""
        assert ("", "bulk") == (why_not_bulk({}), best_backend({}).name)

    @pytest.mark.usefixtures("unknown")
    def test_numba_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without Numba the plain backend is used, which is logged once."""
        monkeypatch.setitem(sys.modules, "app.kafka.bulk.consumer", None)

        with capture_logs() as logs:
            assert [PLAIN, PLAIN] == [best_backend({}), best_backend({})]

        (line,) = logs
        assert "plain_backend" == line["event"]
        assert "app.kafka.bulk.consumer" in line["reason"]

    @pytest.mark.parametrize(
        ("name", "value", "problem"),
        [
            ("libversion", lambda: ("2.17.0", 0x021100FF), "with librdkafka 2.17.0"),
            ("version", lambda: 1, "another librdkafka"),
            ("name", lambda _: b"something else", "an unknown layout"),
            ("MESSAGE_SIZE", 80, "different layout"),
        ],
    )
    def test_another_library(self, monkeypatch: pytest.MonkeyPatch, name: str, value: object, problem: str) -> None:
        """The bulk backend refuses an unexpected librdkafka or confluent-kafka."""
        from app.kafka.bulk import native

        monkeypatch.setattr(native, name, value)

        assert problem in native.problem()

    @pytest.mark.usefixtures("unknown")
    @pytest.mark.parametrize("version", ["2.15.1", "2.16.2", "2.16.1.dev1", "3.0.0"])
    def test_a_client_that_was_not_tested(self, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
        """Its objects may have any layout, so no pointer is followed, and the plain backend is used."""
        from app.kafka.bulk import native

        def crash(_: object) -> int:
            pytest.fail("here the process would end")

        monkeypatch.setattr("confluent_kafka.cimpl.version", lambda: version)
        monkeypatch.setattr(native, "handle", crash)

        assert f"{version} with librdkafka 2.16.0 is installed" in why_not_bulk({})
        assert PLAIN == best_backend({})

    @pytest.mark.usefixtures("unknown")
    def test_kernels_that_do_not_compile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another Numba may refuse them with an error of its own that is not an ImportError."""

        def refuse(name: str) -> object:
            raise TypeError(f"{name}: no such pointer")

        monkeypatch.setattr(backend, "import_module", refuse)

        assert "app.kafka.bulk.consumer: no such pointer" == why_not_bulk({})

    def test_tokens_that_are_renewed(self) -> None:
        """Authentication that needs a callback while polling uses the plain backend; OIDC's has a thread of its own."""
        by_itself = {"sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}

        assert "OAUTHBEARER" in why_not_bulk({"sasl.mechanism": "OAUTHBEARER"})
        assert "OAUTHBEARER" in why_not_bulk(by_itself, {"sasl.mechanisms": "OAUTHBEARER"})
        assert "" == why_not_bulk(by_itself)

    def test_what_the_driver_expects(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It names its tasks' backend without loading Numba."""
        assert best_backend({}).name == expected_backend({})
        assert PLAIN.name == expected_backend({"sasl.mechanism": "OAUTHBEARER"})
        monkeypatch.setattr(backend, "find_spec", lambda _: None)
        assert PLAIN.name == expected_backend({})
