"""The target topics of `winnow dlq replay`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli import main
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
