"""`winnow pause` and `winnow resume` report only what is so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli import main
from app.driver.pause import PauseMark
from app.errors import NotAllowed
from app.model import Partition, Pause
from tests.fakes.driver import DriverKafka
from tests.fakes.pauses import PauseOffsets
from tests.support.configuration import file_of
from tests.unit.config.good import GOOD


@pytest.mark.parametrize("trouble", [None, NotAllowed("Winnow lacks Read on group 'g.pause'", "allow it")])
def test_who_may_not_look_is_not_told_that_nothing_is_paused(
    trouble: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to read the mark, the service works on but the command fails."""
    store, file = PauseOffsets(), file_of(GOOD, tmp_path)
    PauseMark(store, "clean", ["dead"]).set(Pause(5_000, "ops"))
    store.trouble = trouble
    kafka = replace(DriverKafka().clients, pauses=PauseMark(store, "clean", ["dead"]))
    monkeypatch.setattr("app.start.clients", lambda _: kafka)

    done = CliRunner().invoke(main, ["resume", "-c", str(file)])

    assert (3 if trouble else 0) == done.exit_code
    assert (1 if trouble else 0) == store.stored[Partition("dead", 0)].offset
    assert ("not paused" in done.stdout) == (trouble is None)


@pytest.mark.parametrize(
    ("command", "guarantee", "seconds"),
    [("pause", "exactly-once", 10), ("pause", "at-least-once", 30), ("resume", "at-least-once", 10)],
)
def test_it_says_how_soon_a_running_service_follows(
    command: str, guarantee: str, seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without transactions a pause waits for the end of the round, which lasts three checks."""
    file = file_of(GOOD | {"delivery.guarantee": guarantee}, tmp_path)
    kafka = replace(DriverKafka().clients, pauses=PauseMark(PauseOffsets(), "clean", ["dead"]))
    monkeypatch.setattr("app.start.clients", lambda _: kafka)

    done = CliRunner().invoke(main, [command, "-c", str(file)])

    assert 0 == done.exit_code, done.output
    assert f"follows within {seconds} s" in done.stdout
