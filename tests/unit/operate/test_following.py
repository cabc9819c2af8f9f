"""Whether and when a running service has followed a pause, or the end of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.errors import NotFollowed, NotUsable, Unreachable
from app.model import CommittedOffset, Owner, Partition
from app.offsets.metadata import OffsetMetadata
from app.operate import served
from app.operate.following import Follower
from app.operate.running import WatchedOffsets
from app.runtime import Runtime, Timings
from tests.fakes.driver import DriverKafka, config
from tests.fakes.simulation import SimulatedTime

A = Partition("raw", 0)
HERE, PAGE = "here", "http://127.0.0.1:8090"
SIGNS, START = 3.0, 30.0


class FollowedKafka:
    """A service that commits one partition until a moment or from one on, and that may serve a page."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *settings: str, **options: object) -> None:
        self.kafka, self.time = DriverKafka(p0=(0, 100), p1=(0, 100)), SimulatedTime()
        owner = Owner(5_000, HERE, "clean")
        self.kafka.committed = {A: CommittedOffset(5, str(OffsetMetadata("id-1", 0, owner=owner)))}
        self.works: Callable[[float], bool] = lambda _: False
        self.page: Callable[[float], dict[str, Any]] | None = None
        monkeypatch.setattr(served, "status", self._status)
        commits = WatchedOffsets(config(), self.kafka.clients) if options.get("commits", True) else None
        runtime = Runtime(monotonic=self.time, host=str(options.get("host", HERE)))
        self.service = Follower(config(*settings), Timings(), commits, PAGE, runtime=runtime, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        if self.works(self.time.now):
            self.kafka.committed[A] = CommittedOffset(self.kafka.committed[A].offset + 1)
        self.time.pass_by(seconds)

    def _status(self, url: str, group: str) -> dict[str, Any]:
        assert (PAGE, "g") == (url, group)
        if self.page is None:
            raise Unreachable("no service answers", "see --status")
        return {"phase": "running", "paused": None} | self.page(self.time.now)


@pytest.mark.parametrize("works", [True, False])
def test_a_service_that_works_moves_an_offset(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle one, too, so one look of a few seconds tells whether there is one."""
    group = FollowedKafka(monkeypatch)
    group.works = lambda _: works

    assert works is group.service.works
    assert (SIGNS > group.time.now) is works


@pytest.mark.parametrize(
    ("answer", "works"),
    [
        ({"phase": "running"}, True),
        ({"phase": "leaving"}, True),
        ({"phase": "starting", "paused": {"since": 1, "by": "ops"}}, True),
        ({"phase": "stopped"}, False),
    ],
    ids=str,
)
def test_the_page_says_whether_a_service_works(
    answer: dict[str, Any], works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No moment is lost with watching."""
    group = FollowedKafka(monkeypatch)
    group.page = lambda _: answer

    assert works is group.service.works
    assert 0 == group.time.now


@pytest.mark.parametrize("works", [True, False])
def test_the_page_of_one_that_starts_or_stands_by_says_nothing_of_others(
    works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may work for the group; one that starts does not work yet, and need not stop."""
    group = FollowedKafka(monkeypatch)
    group.page, group.works = lambda _: {"phase": "starting"}, lambda _: works

    assert works is group.service.works
    assert not group.service.has_gone


def test_the_other_one_pauses_and_resumes_while_this_one_stands_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offsets show it. The page of the one that stands by is never paused."""
    group = FollowedKafka(monkeypatch)
    group.page, group.works = lambda _: {"phase": "starting"}, lambda now: now < 7 or now >= 20

    assert 7 == group.service.paused(10)
    assert 10 < group.service.resumed(20) <= 10.5


def test_it_has_paused_when_its_last_commit_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a page, the wait goes on until offsets have stood still for as long as a working service never lets them."""
    group = FollowedKafka(monkeypatch)
    group.works = lambda now: now < 7

    assert 7 == group.service.paused(10)
    assert 7 + SIGNS == group.time.now


def test_one_gap_between_commits_is_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle task commits each second only."""
    group = FollowedKafka(monkeypatch)
    group.works = lambda now: now < 2 or 4 <= now < 5

    assert 5 == group.service.paused(10)


def test_the_page_says_when_it_has_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets are not needed then, and it is known at once."""
    group = FollowedKafka(monkeypatch, commits=False)
    group.page = lambda now: {"paused": {"since": 1, "by": "ops"} if now >= 4 else None}

    assert (4, 4) == (group.service.paused(10), group.time.now)


def test_one_that_never_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait has an end, and the error says what is so."""
    group = FollowedKafka(monkeypatch)
    group.works = lambda _: True

    with pytest.raises(NotFollowed, match=r"it is noted, but after 40 s the service still works.*--no-wait") as error:
        group.service.paused(10)
    assert 10 + START == group.time.now
    assert 1 == error.value.exit_code


def test_offsets_that_rarely_move_are_watched_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a `commit.interval` of a minute they show a pause only after two minutes without a commit."""
    group = FollowedKafka(monkeypatch, "commit.interval=1m", "transaction.timeout=4m")
    group.works = lambda now: now < 7

    assert 7 == group.service.paused(10)


def test_it_has_resumed_with_its_first_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is one within a second, also without records."""
    group = FollowedKafka(monkeypatch)
    group.works = lambda now: now >= 6

    assert 6 < group.service.resumed(10) <= 6.5


def test_the_page_says_when_it_has_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partitions may all be blocked: then no offset moves."""
    group = FollowedKafka(monkeypatch)
    group.page = lambda now: {"paused": {"since": 1, "by": "ops"} if now < 4 else None}

    assert 4 == group.service.resumed(10)


def test_one_that_never_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Perhaps none runs."""
    group = FollowedKafka(monkeypatch)

    with pytest.raises(NotFollowed, match="after 40 s no service works for the group"):
        group.service.resumed(10)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (Unreachable("Kafka is not responding"), "Kafka is not responding"),
        (NotUsable("topic 'raw' does not exist"), "topic 'raw' does not exist"),
        (KeyboardInterrupt(), "the wait was interrupted"),
    ],
    ids=str,
)
@pytest.mark.parametrize("wait", [Follower.paused, Follower.resumed])
def test_a_wait_that_fails_says_that_it_is_noted(
    wait: Callable[[Follower, float], float], trouble: BaseException, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service follows, though nobody sees it: who believed that it does not would let it stand."""
    group = FollowedKafka(monkeypatch)

    def away(*_: object) -> None:
        raise trouble

    monkeypatch.setattr(WatchedOffsets, "moved", away)

    with pytest.raises(NotFollowed, match=f"^it is noted, but whether the service follows is unknown: {said}$"):
        wait(group.service, 10)


@pytest.mark.parametrize(("host", "answers", "gone"), [(HERE, False, True), (HERE, True, False), ("x", False, False)])
def test_the_last_run_was_here_and_does_not_answer(
    host: str, answers: bool, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused service commits nothing, so elsewhere only its page could tell that there is none."""
    group = FollowedKafka(monkeypatch, host=host)
    group.page = (lambda _: {}) if answers else None

    assert gone is group.service.has_gone


def test_what_answers_for_another_group_shows_nothing_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service may listen at another port beside it, as in a take-over."""
    group = FollowedKafka(monkeypatch)

    def answers(*_: object) -> None:
        raise NotUsable("the service of another group answers", "see --status")

    monkeypatch.setattr(served, "status", answers)

    assert not group.service.has_gone


@pytest.mark.parametrize(("page", "visible"), [(None, False), ({}, True)], ids=["no page", "a page"])
def test_what_shows_nothing_is_not_waited_for(
    page: dict[str, Any] | None, visible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's cluster may be away while somebody pauses the service, and offsets may be in its own process."""
    group = FollowedKafka(monkeypatch)
    group.page = None if page is None else lambda _: page

    def away(*_: object) -> None:
        raise NotUsable("topic 'raw' does not exist", "create it")

    monkeypatch.setattr(DriverKafka, "source_topics", away)

    assert visible is (Follower.visible(config(), group.kafka.clients, "") is not None)
