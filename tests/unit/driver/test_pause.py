"""A pause: its mark, the paused service, and what must not expire in the meantime."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from app.driver.pause import AGAIN_SECONDS, PauseMark
from app.driver.renewal import RENEW_SECONDS
from app.driver.stop import Stop
from app.driver.tracker import StatusTracker
from app.errors import NotAllowed, Transient, Unreachable
from app.model import CommittedOffset, FirstWaiting, Partition, Pause
from app.runtime import Runtime
from tests.fakes.driver import DriverKafka, FakeRounds, SimulatedRounds, config, service, works
from tests.fakes.pauses import PAUSE, PausedFor, PauseOffsets
from tests.fakes.simulation import SimulatedStop, SimulatedTime
from tests.support.logs import of_event

A = Partition("raw", 0)
SINK, OTHERS = "clean", ("dead", "raw")
TOPICS = (SINK, *OTHERS)


class TestMark:
    def test_it_is_set_and_cleared(self) -> None:
        """The mark says since when and from where."""
        mark = PauseMark(PauseOffsets(), SINK, OTHERS)

        assert mark.read() is None
        mark.set(PAUSE)
        assert mark.read() == PAUSE
        mark.clear()
        assert mark.read() is None

    def test_a_mark_of_somebody_else(self) -> None:
        """It counts, whatever its metadata contain."""
        store = PauseOffsets()
        store.stored[Partition("dead", 0)] = CommittedOffset(1, "since=x")

        assert Pause(0, "") == PauseMark(store, SINK, ["dead"]).read()

    @pytest.mark.parametrize("topic", TOPICS)
    def test_it_outlives_each_of_its_topics(self, topic: str) -> None:
        """Kafka deletes offsets with their topic. The service stays paused until an operator resumes it."""
        store = PauseOffsets()
        mark = PauseMark(store, SINK, OTHERS)
        mark.set(PAUSE)

        store.delete(topic)

        assert PAUSE == mark.read()
        store.missing.add(topic)
        mark.clear()
        assert PauseMark(store, SINK, OTHERS).read() is None

    def test_it_is_set_while_a_topic_is_missing(self) -> None:
        """An operator may pause the service to recreate a topic. If no topic accepts the mark, it is an error."""
        store = PauseOffsets()
        store.missing.add("dead")
        mark = PauseMark(store, SINK, OTHERS)

        mark.set(PAUSE)
        assert PAUSE == mark.read()
        store.missing |= set(TOPICS)
        with pytest.raises(Transient):
            mark.set(PAUSE)

    def test_who_may_not_set_it_is_told(self) -> None:
        """Without a right on the group each mark would time out, and the topic would be blamed."""
        store = PauseOffsets()
        store.trouble = NotAllowed("no")

        with pytest.raises(NotAllowed):
            PauseMark(store, SINK, OTHERS).set(PAUSE)
        assert {} == store.stored

    def test_it_is_set_where_it_may_be(self) -> None:
        """Any one of the marks counts. If none may be set, the refusal is the error."""
        store = PauseOffsets()
        mark = PauseMark(store, SINK, OTHERS)
        store.denied = dict.fromkeys((SINK, "dead"), NotAllowed("no"))

        mark.set(PAUSE)
        assert PAUSE == mark.read()
        store.denied["raw"] = NotAllowed("no")
        with pytest.raises(NotAllowed):
            mark.set(PAUSE)

    @pytest.mark.parametrize("error", [NotAllowed("no"), Transient(Partition(SINK, 0), "timed out")])
    def test_a_resume_that_cannot_remove_the_sinks_mark(self, error: Exception) -> None:
        """It ends with the reason; it asked for ever, and said nothing."""
        store = PauseOffsets()
        mark = PauseMark(store, SINK, OTHERS)
        mark.set(PAUSE)
        store.denied = {SINK: error}
        store.before_request(20, lambda: pytest.fail("it asks for ever"))

        with pytest.raises(type(error)):
            mark.clear()

        assert PAUSE == mark.read()

    def test_a_renewal_restores_every_place(self) -> None:
        """A topic that was created again has lost the mark."""
        store = PauseOffsets()
        mark = PauseMark(store, SINK, OTHERS)
        mark.set(PAUSE)
        store.delete("dead")

        mark.renew()

        assert set(TOPICS) == {each.topic for each in store.stored}

    def test_a_renewal_does_not_undo_a_resume(self) -> None:
        """The service may have read the mark just before an operator ended the pause."""
        mark = PauseMark(PauseOffsets(), SINK, OTHERS)
        mark.set(PAUSE)
        mark.clear()

        mark.renew()

        assert mark.read() is None

    @pytest.mark.parametrize("resumed_before", range(7))
    def test_a_renewal_beside_a_resume(self, resumed_before: int) -> None:
        """Whichever request of a renewal the operator's resume precedes, the pause has ended, and no mark is left."""
        store = PauseOffsets()
        mark, operator = PauseMark(store, SINK, OTHERS), PauseMark(store, SINK, OTHERS)
        mark.set(PAUSE)
        store.before_request(resumed_before, operator.clear)

        mark.renew()
        store.last_act()

        assert operator.read() is None
        assert not [at for at in store.stored.values() if at.offset]

    @pytest.mark.parametrize("renewed_before", range(9))
    def test_a_resume_beside_a_renewal(self, renewed_before: int) -> None:
        """Whichever request of a resume a renewal precedes, the pause has ended, and no mark is left."""
        store = PauseOffsets()
        mark, service = PauseMark(store, SINK, OTHERS), PauseMark(store, SINK, OTHERS)
        mark.set(PAUSE)
        store.before_request(renewed_before, service.renew)

        mark.clear()

        assert mark.read() is None
        assert not [at for at in store.stored.values() if at.offset]

    def test_a_pause_after_a_resume(self) -> None:
        """The end of one pause does not end the next one."""
        mark, later = PauseMark(PauseOffsets(), SINK, OTHERS), PAUSE._replace(since=PAUSE.since + 1)
        mark.set(PAUSE)
        mark.clear()

        mark.set(later)

        assert later == mark.read()

    def test_a_refusal_does_not_end_it(self) -> None:
        """A restarted broker may not know our rights for a moment, so the last mark read holds."""
        store = PauseOffsets()
        mark = PauseMark(store, SINK, OTHERS)
        mark.set(PAUSE)
        assert PAUSE == mark.read()

        store.trouble = NotAllowed("no")

        assert PAUSE == mark.read()

    def test_who_may_not_ask(self) -> None:
        """A service without the right to read the mark works, but an outage is an error."""
        store = PauseOffsets()
        store.trouble = NotAllowed("no")
        assert PauseMark(store, SINK, OTHERS).read() is None
        store.trouble = Unreachable("away")
        with pytest.raises(Unreachable):
            PauseMark(store, SINK, OTHERS).read()

    def test_who_may_not_ask_asks_rarely(self) -> None:
        """Each denied request takes seconds; the right may be granted later."""
        store, now = PauseOffsets(), [0.0]
        mark = PauseMark(store, SINK, OTHERS, lambda: now[0])
        mark.set(PAUSE)
        store.trouble = NotAllowed("no")
        assert mark.read() is None

        store.trouble = None
        now[0] = AGAIN_SECONDS - 1
        assert mark.read() is None
        now[0] = AGAIN_SECONDS
        assert PAUSE == mark.read()


class Waits(Stop):
    """A stop whose waits take no time but are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.meanwhile()
        return super().wait(0)

    @property
    def runtime(self) -> Runtime:
        """Time passes only in these waits."""
        return Runtime(monotonic=lambda: sum(self.waited))


class TestService:
    def test_a_service_that_starts_paused(self) -> None:
        """It plans no round until it is resumed, and logs both events."""
        kafka, stop = DriverKafka(p0=(0, 10)), Waits()
        kafka.pauses = PausedFor(3)
        rounds = FakeRounds(works(kafka))

        with capture_logs() as logs:
            assert 0 == service(kafka, rounds, stop=stop, runtime=stop.runtime).run(until_end=True)

        assert [10.0] * 3 == stop.waited
        assert 10 == kafka.committed[A].offset
        assert ["paused", "resumed"] == [each["event"] for each in logs if each["event"] in ("paused", "resumed")]

    def test_how_old_what_waits_is(self) -> None:
        """The age grows during a pause, and operators must see it before retention deletes records."""
        kafka, stop = DriverKafka(p0=(0, 10)), Waits()
        kafka.pauses = PausedFor(1)
        kafka.ages = {A: FirstWaiting(5.0, 60.0)}
        tracker, seen = StatusTracker("g", runtime=stop.runtime), []
        stop.meanwhile = lambda: seen.append(tracker.snapshot.partitions[A].waiting)
        one = service(kafka, FakeRounds(works(kafka)), stop=stop, runtime=stop.runtime, tracker=tracker)

        one.run(until_end=True)

        assert [FirstWaiting(5.0, 60.0)] == seen

    def test_offsets_do_not_expire_meanwhile(self) -> None:
        """The mark and the offsets are renewed regularly, behind a fence."""
        kafka, stop = DriverKafka(p0=(0, 10), p1=(0, 10)), Waits()
        kafka.committed[A] = CommittedOffset(4, "metadata")
        kafka.pauses = mark = PausedFor(8)
        settings = config("round.interval=3600s")

        service(kafka, FakeRounds(works(kafka)), settings, stop=stop, runtime=stop.runtime).run(until_end=True)

        assert RENEW_SECONDS <= sum(stop.waited) < 2 * RENEW_SECONDS
        assert [PAUSE, PAUSE] == mark.renewed
        assert [A, A] == kafka.renewed
        assert [[A], [A]] == kafka.fenced[1:3]


def test_a_running_round_ends() -> None:
    """The check of a round sees the mark, and the tasks end as for a rebalance."""
    kafka, time = DriverKafka(p0=(0, 10)), SimulatedTime()
    kafka.pauses = pauses = PausedFor(0)
    rounds = SimulatedRounds(kafka, time, then=lambda: pauses.answers.append(PAUSE))

    with capture_logs() as logs:
        service(kafka, rounds, stop=SimulatedStop(time, 60), runtime=time.runtime).run(until_end=False)

    assert "the service is paused" in {each["reason"] for each in of_event(logs, "rebalance")}


def test_the_configuration_is_used() -> None:
    """The wait is the interval of the rounds."""
    kafka, stop = DriverKafka(p0=(0, 10)), Waits()
    kafka.pauses = PausedFor(1)

    settings = config("round.interval=7s")
    service(kafka, FakeRounds(works(kafka)), settings, stop=stop, runtime=stop.runtime).run(until_end=True)

    assert [7.0] == stop.waited
