"""The target topics of `winnow dlq replay`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli import main
from app.operate.dead_letters import Letter
from tests.fakes.driver import DriverKafka
from tests.support.configuration import file_of
from tests.unit.config.good import GOOD


@pytest.mark.parametrize("topic", ["raw", "dead", "dead.replayed", "dead.parked"])
def test_lines_go_to_no_other_topic_of_the_service(topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines in a source topic would be read again and become dead letters."""
    file = file_of(GOOD | {"dead.letters": {"topic": "dead"}}, tmp_path)
    monkeypatch.setattr("app.start.clients", lambda _: DriverKafka(p0=(0, 9)).clients)

    done = CliRunner().invoke(main, ["dlq", "replay", "-c", str(file), "--into", topic, "--dry-run"])

    assert 2 == done.exit_code, done.output
    assert f"--into: {topic!r} is one of the service's topics" in done.stderr


def test_a_reason_that_may_be_misspelt_is_questioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command goes on, as a dead letter may be of another parser; a known or a strange reason raises no question."""
    file = file_of(GOOD, tmp_path)
    monkeypatch.setattr(sys.modules["app.cli.dlq"], "_dead_letters", lambda _: Empty())
    reasons = [each for name in ("housid", "houseid", "to_large", "org.acme.Error") for each in ("--reason", name)]

    for command in ("ls", "stats"):
        done = CliRunner().invoke(main, ["dlq", command, "-c", str(file), *reasons])
        assert 0 == done.exit_code, done.output
        assert [
            "winnow: --reason housid: this configuration gives no such reason; did you mean houseid?",
            "winnow: --reason to_large: this configuration gives no such reason; did you mean too_large?",
        ] == done.stderr.splitlines()


class Empty:
    """A topic without dead letters."""

    def chosen(self, _selection: object) -> list[Letter]:
        return []

    def newest(self, _selection: object, _limit: int) -> list[Letter]:
        return []
