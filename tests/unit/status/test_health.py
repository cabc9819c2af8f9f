"""What the service does now: one word, since when, what happens without an operator, and what is safe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model import Owner, Partition, Pause
from app.status.condition import Condition
from app.status.document import document
from app.status.health import BEHIND_EQUAL, BEHIND_LATER, LEVELS, Level, not_ready, situation
from app.status.metrics import exposition
from app.status.snapshot import Phase, Problem, Snapshot, Step
from tests.unit.status.snapshots import FLOWING, IDLE, LOST, NOTHING_YET, NOW, SNAPSHOT

ASKED = "reading the offsets of group 'idc.pause': timed out"
OUTAGE = Problem(f"Kafka is not responding while {ASKED}", "", 9_957.0)
RIVAL = Problem("the service on there works for the same group", "nothing to do", 9_900.0)
AWAY = replace(SNAPSHOT, outage=OUTAGE, alive=NOW)
WELL = replace(SNAPSHOT, partitions={IDLE.partition: IDLE}, alive=NOW)
STARTING = replace(NOTHING_YET, step=Step.SPARK, step_since=9_995.0, alive=NOW)

KNOWN: dict[str, tuple[Snapshot, Level, str, float | None]] = {
    "ok": (WELL, Level.GOOD, "running", None),
    "blocked": (replace(SNAPSHOT, alive=NOW), Level.BAD, "running", None),
    "outage": (AWAY, Level.BAD, "Kafka is not responding", 9_957.0),
    "hangs": (replace(AWAY, alive=NOW - 60), Level.BAD, "the driver gives no sign of life", NOW - 60),
    "starting": (STARTING, Level.BUSY, "starting: waits for Spark to start", 9_995.0),
    "standing by": (replace(STARTING, rival=RIVAL), Level.GOOD, BEHIND_EQUAL, 9_900.0),
    "paused": (replace(WELL, paused=Pause(9_000_000, "ops-1")), Level.WARNING, "paused from ops-1", 9_000.0),
    "handing over": (replace(WELL, phase=Phase.LEAVING), Level.BUSY, "the service is leaving", None),
    "stopping": (replace(WELL, phase=Phase.STOPPING), Level.BUSY, "the service is stopping", None),
    "stopped": (replace(WELL, phase=Phase.STOPPED), Level.BUSY, "the service is stopped", None),
}


@pytest.mark.parametrize("word", KNOWN)
def test_each_situation_has_a_word_a_level_and_a_beginning(word: str) -> None:
    """A normal start, a stop and a healthy stand-by are not red."""
    snapshot, level, says, since = KNOWN[word]
    found = situation(snapshot, NOW)

    assert (word, level, says, since) == (found.word, found.level, found.says, found.since)
    assert found.ready == (not not_ready(snapshot)) or word == "hangs"


def test_a_later_generation_is_a_reason_to_stand_by() -> None:
    """Also without a rival of the same generation."""
    behind = replace(STARTING, taken={Partition("raw", 0): Owner(1, "there", "clean")})

    found = situation(behind, NOW)
    assert ("standing by", BEHIND_LATER) == (found.word, found.says)


def test_the_worst_partition_is_the_word() -> None:
    """One that catches up counts more than one that is idle."""
    both = replace(WELL, partitions={each.partition: each for each in (IDLE, FLOWING)})

    assert ("catching up", Level.BUSY) == situation(both, NOW)[:2]
    assert list(Condition) == sorted(LEVELS, key=list(Condition).index)


def test_an_outage_says_since_when_what_happens_and_what_is_safe() -> None:
    """The document has each fact once, in words of its own; the problem itself is in the list as before."""
    known = document(AWAY, NOW)
    service = known["service"]

    assert ("Kafka is not responding", ASKED, 9_957.0) == (service["says"], service["detail"], service["since"])
    assert "try again" in service["happening"]
    assert "No record is lost or written twice" in service["safe"]
    assert OUTAGE.cause == service["problem"]["cause"] == known["problems"][0]["cause"]
    assert known["records_per_second"] is None
    assert {None} == {each["records_per_second"] for each in known["partitions"]}
    assert ["unknown", "unknown", "blocked"] == [each["condition"] for each in known["partitions"]]
    assert 'winnow_partition_condition{group="idc",topic="raw",partition="0"} 6\n' in exposition(AWAY, NOW).decode()


def test_what_is_safe_depends_on_the_guarantee() -> None:
    """At least once may write lines again; before the guarantee is known, nothing is promised."""
    weaker = replace(AWAY, about=AWAY.about._replace(guarantee="at-least-once"))

    assert "are written again" in situation(weaker, NOW).safe
    assert "" == situation(replace(AWAY, about=AWAY.about._replace(guarantee="")), NOW).safe


def test_a_cause_that_names_no_request_is_its_own_headline() -> None:
    """Not every outage is a request without an answer."""
    outage = Problem("no source partition has a leader", "", 0)
    found = situation(replace(AWAY, outage=outage), NOW)

    assert ("no source partition has a leader", "") == (found.says, found.detail)


def test_the_total_rate_is_that_of_the_known_ones() -> None:
    """A partition that was looked at once adds nothing."""
    assert 100.0 == document(SNAPSHOT, NOW)["records_per_second"]
    assert LOST.cause in {each["cause"] for each in document(SNAPSHOT, NOW)["problems"]}
