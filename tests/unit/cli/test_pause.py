"""`winnow pause` and `winnow resume` report only what is so."""

from __future__ import annotations

import json
from dataclasses import replace
from http.client import BadStatusLine
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli import main
from app.driver.pause import PauseMark
from app.errors import NotAllowed
from app.model import Partition, Pause
from app.operate import following
from app.operate.following import Follower
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

    done = CliRunner().invoke(main, ["resume", "--no-wait", "-c", str(file)])

    assert (3 if trouble else 0) == done.exit_code
    assert (1 if trouble else 0) == store.stored[Partition("dead", 0)].offset
    assert ("not paused" in done.stdout) == (trouble is None)


def test_a_pause_without_the_right_ends_with_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the right. Code 1 means that a service did not pause in time."""
    store = PauseOffsets()
    store.trouble = NotAllowed("Kafka denied access while reading the offsets of group 'g.pause'", "allow it")
    marks = PauseMark(store, "clean", ["dead"])
    monkeypatch.setattr("app.start.clients", lambda _: replace(DriverKafka().clients, pauses=marks))

    done = CliRunner().invoke(main, ["pause", "--no-wait", "-c", str(file_of(GOOD, tmp_path))])

    assert 3 == done.exit_code
    assert "of group 'g.pause': allow it" in done.stderr
    assert {} == store.stored


@pytest.mark.parametrize(
    ("command", "guarantee", "seconds"),
    [("pause", "exactly-once", 10), ("pause", "at-least-once", 30), ("resume", "at-least-once", 10)],
)
def test_without_waiting_it_says_how_soon_a_running_service_follows(
    command: str, guarantee: str, seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without transactions a pause waits for the end of the round, which lasts three checks."""
    file = file_of(GOOD | {"delivery.guarantee": guarantee}, tmp_path)
    kafka = replace(DriverKafka().clients, pauses=PauseMark(PauseOffsets(), "clean", ["dead"]))
    monkeypatch.setattr("app.start.clients", lambda _: kafka)

    done = CliRunner().invoke(main, [command, "--no-wait", "-c", str(file)])

    assert 0 == done.exit_code, done.output
    assert f"follows within {seconds} s" in done.stdout


class Followed:
    """A service that works, follows within seconds, or has gone."""

    url = "http://here:1"

    def __init__(self, *, works: bool = True, has_gone: bool = False) -> None:
        self.works, self.has_gone = works, has_gone

    def paused(self, seconds: float) -> float:
        return seconds - 4.25

    def resumed(self, seconds: float) -> float:
        return seconds - 3.25


@pytest.mark.parametrize(
    ("command", "paused", "service", "said", "seconds"),
    [
        ("pause", False, Followed(), "the service followed after 5.8 s", 5.75),
        (
            "pause",
            False,
            Followed(works=False),
            "no service works for the group, and one that starts stays paused",
            None,
        ),
        ("pause", False, None, "a running service follows within 10 s", None),
        ("resume", True, Followed(), "the service followed after 6.8 s", 6.75),
        (
            "resume",
            True,
            Followed(has_gone=True),
            "the last run was on this machine, and nothing answers at http://here:1: give --status if it listens elsewhere",
            None,
        ),
        ("resume", True, None, "a running service follows within 10 s", None),
        ("resume", False, Followed(), "it was not paused", None),
    ],
)
def test_it_waits_until_the_service_has_followed(
    *,
    command: str,
    paused: bool,
    service: Followed | None,
    said: str,
    seconds: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says how long that took, and does not wait for what is not there or cannot be seen."""
    file = file_of(GOOD, tmp_path)
    monkeypatch.setattr(Follower, "visible", lambda *_: service)

    def winnow(*more: str) -> str:
        marks = PauseMark(PauseOffsets(), "clean", ["dead"])
        if paused:
            marks.set(Pause(5_000, "ops"))
        monkeypatch.setattr("app.start.clients", lambda _: replace(DriverKafka().clients, pauses=marks))
        done = CliRunner().invoke(main, [command, "-c", str(file), *more])
        assert 0 == done.exit_code, done.output
        return done.stdout

    shown = json.loads(winnow("--json"))

    assert winnow().endswith(f"; {said}\n")
    assert seconds == shown["followed_seconds"]
    assert ("pause" == command) is (shown["paused"] is not None)


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_server_that_speaks_no_http_hinders_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port of the status page may be another service's."""

    def speaks_ssh(*_: object, **__: object) -> None:
        raise BadStatusLine("SSH-2.0-OpenSSH_9.6")

    marks = PauseMark(PauseOffsets(), "clean", ["dead"])
    if command == "resume":
        marks.set(Pause(5_000, "ops"))
    monkeypatch.setattr("urllib.request.OpenerDirector.open", speaks_ssh)
    monkeypatch.setattr(following, "is_local", lambda _: True)
    monkeypatch.setattr("app.start.clients", lambda _: replace(DriverKafka().clients, pauses=marks))

    done = CliRunner().invoke(main, [command, "-c", str(file_of(GOOD, tmp_path))])

    assert 0 == done.exit_code, done.output
    assert ("pause" == command) is (marks.read() is not None)


@pytest.mark.parametrize("command", ["pause", "resume", "doctor"])
@pytest.mark.parametrize("url", ["localhost:8090", "http://[::1"])
def test_the_address_of_a_status_page_is_checked(command: str, url: str, tmp_path: Path) -> None:
    """Before anything is asked or set."""
    done = CliRunner().invoke(main, [command, "-c", str(file_of(GOOD, tmp_path)), "--status", url])

    assert 2 == done.exit_code
    assert f"'{url}' is not an HTTP address" in done.stderr
