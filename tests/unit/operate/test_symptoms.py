"""What the doctor says about each fact, and what it does not mind."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from app.cures import KafkaTools
from app.driver.diagnostics import Severity
from app.errors import OutOfRange, PartitionError
from app.facts import OpenTransaction
from app.model import CommittedOffset, Guarantee, Partition, Watermarks
from app.operate import symptoms
from app.operate.expected import Origin
from app.operate.findings import Defect, Finding
from app.operate.lag import PartitionLag
from app.operate.symptoms import Symptom, gathered

A, B = Partition("raw", 0), Partition("raw", 1)
TOOLS = KafkaTools("there:9092")
DAY = 86_400


def lag(offset: int | None = 5, seconds: float | None = 0.0, trouble: PartitionError | None = None) -> PartitionLag:
    """Return the lag of a partition that begins at 2 and ends at 9."""
    committed = None if offset is None else CommittedOffset(offset)
    return PartitionLag(A, committed, Watermarks(2, 9, 9), seconds, trouble=trouble)


def said(found: Iterable[Symptom]) -> list[tuple[str, str, str]]:
    return [(each.severity.value, each.where, each.what) for each in found]


@pytest.mark.parametrize(
    ("at", "where", "what", "cure"),
    [
        (
            PartitionLag(A, None, None),
            "raw-0",
            "the partition has no leader, or its broker does not answer",
            "bring its",
        ),
        (lag(1, trouble=OutOfRange(A, "gone", 1, "reset it")), "raw-0@1", "gone", "reset it"),
        (lag(1), "raw-0@1", "1 offsets were deleted before they were read", "keep records for longer: kafka-configs"),
        (lag(12), "raw-0@12", "the partition ends at 9, below the committed offset", "look again: winnow lag"),
    ],
)
def test_a_partition_that_does_not_flow(at: PartitionLag, where: str, what: str, cure: str) -> None:
    """Each is wrong, with its place and the command."""
    (found,) = symptoms.of_partitions([at], TOOLS)

    assert ("wrong", where, what) == (found.severity, found.where, found.what)
    assert cure in found.cure


@pytest.mark.parametrize("at", [lag(), lag(9), lag(None)])
def test_a_partition_that_flows(at: PartitionLag) -> None:
    """A lag alone is not wrong, nor is a group without an offset."""
    assert [] == list(symptoms.of_partitions([at], TOOLS))


@pytest.mark.parametrize(
    ("age", "left"),
    [(50_000.0, "50000 s old and will be deleted in 36400 s at the latest"), (90_000.0, "deleted at any moment")],
)
def test_records_about_to_be_deleted(age: float, left: str) -> None:
    """As in the alert, the second half of the retention is near; the command doubles it."""
    (found,) = symptoms.of_retention([lag(seconds=age)], {"raw": DAY}, TOOLS)

    assert ("wrong", "raw-0@5") == (found.severity, found.where)
    assert found.what.endswith(left)
    assert found.cure.endswith("--alter --topic raw --add-config retention.ms=172800000")


@pytest.mark.parametrize(
    ("at", "retention"), [(lag(seconds=40_000.0), DAY), (lag(seconds=90_000.0), None), (lag(9), 1), (lag(), DAY)]
)
def test_records_that_are_safe(at: PartitionLag, retention: float | None) -> None:
    """They are young, or kept for ever, or none waits."""
    assert [] == list(symptoms.of_retention([at], {"raw": retention}, TOOLS))


def other(offset: int, metadata: str = "") -> PartitionLag:
    return PartitionLag(B, CommittedOffset(offset, metadata), Watermarks(0, 9, 9))


def test_no_service_works() -> None:
    """Nothing moves. That is wrong if records wait; the partitions with a problem have their own symptoms."""
    silent = "no service works: no offset was committed within 3 s"

    assert [("wrong", "the group", f"{silent}, and 4 wait in 1 partitions")] == said(
        symptoms.of_flow([lag(), other(9)], [lag(), other(9)], 3)
    )
    assert [("warns", "the group", silent)] == said(symptoms.of_flow([lag(9)], [lag(9)], 3))
    assert [] == said(symptoms.of_flow([lag(12)], [lag(12)], 3))
    assert [] == said(symptoms.of_flow([lag(12), other(9)], [lag(12), other(9)], 3))


def test_a_partition_that_stays_behind() -> None:
    """Another one moved, or a task has stored its times again, so a service works."""
    stays = [("warns", "raw-0@5", "records wait, but its offset has not moved for 3 s")]

    assert stays == said(symptoms.of_flow([lag(), other(8)], [lag(), other(9)], 3))
    assert stays == said(symptoms.of_flow([lag(), other(9, "a")], [lag(), other(9, "b")], 3))
    assert [] == said(symptoms.of_flow([lag(), other(8)], [lag(6), other(9)], 3))
    assert [] == said(symptoms.of_flow([lag(9), other(8)], [lag(9), other(9)], 3))


def test_readers_that_wait() -> None:
    """The last stable offset stands still below the end; a service that commits moves it on."""
    stuck = {A: Watermarks(0, 5, 9), B: Watermarks(0, 5, 9)}
    now = {A: Watermarks(0, 5, 11), B: Watermarks(0, 8, 11)}

    (found,) = symptoms.of_readers(stuck, now, 3, TOOLS, perhaps_ours=False)
    (ours,) = symptoms.of_readers(stuck, now, 3, TOOLS, perhaps_ours=True)

    assert ("wrong", "raw-0@5") == (found.severity, found.where)
    assert ("warns", "raw-0@5") == (ours.severity, ours.where), "a busy service may be about to commit"
    assert "kafka-transactions --bootstrap-server there:9092 find-hanging --topic raw --max-tr" in found.cure
    assert "a replay's, which it does not list, ends after transaction.timeout" in found.cure
    ended = {A: Watermarks(0, 9, 9)}
    assert [] == list(symptoms.of_readers(ended, ended, 3, TOOLS, perhaps_ours=False))


def test_a_transaction_that_outlives_its_timeout() -> None:
    """A younger one is the work of a running service."""
    began = 1_800_000_000
    found = [OpenTransaction(each, "ongoing", at * 1000, 1, 1) for each, at in ((A, began), (B, began + 50))]

    assert [("wrong", "raw-0", "its transaction has been ongoing for 90 s, longer than transaction.timeout")] == said(
        symptoms.of_transactions(found, 60, began + 90)
    )


STORED, GARBAGE = CommittedOffset(5), CommittedOffset.not_readable("'x' is not an offset")


def mirrored(found: CommittedOffset | None, before: CommittedOffset = STORED) -> list[tuple[str, str, str]]:
    offsets = {} if found is None else {A: found}
    return said(symptoms.of_mirror("kafka", "redis", offsets, {A: before}, {A: CommittedOffset(8)}))


def test_a_mirror_that_differs() -> None:
    """Its offset may be any that the store had between two looks."""
    assert [] == mirrored(CommittedOffset(5)) == mirrored(CommittedOffset(8))
    assert [("warns", "raw-0", "mirror redis has offset 4, but kafka has 8")] == mirrored(CommittedOffset(4))
    assert [("warns", "raw-0", "mirror redis has offset 9, but kafka has 8")] == mirrored(CommittedOffset(9))
    assert [("warns", "raw-0", "mirror redis has no offset")] == mirrored(None)
    assert [("warns", "raw-0", "mirror redis holds something other than an offset")] == mirrored(GARBAGE)
    assert [] == mirrored(None, GARBAGE), "it has its own symptom"


def test_the_cure_of_a_mirror_that_differs() -> None:
    """It says when a service does it, and is the command that writes the store's offsets into the mirror."""
    (found,) = symptoms.of_mirror("kafka", "redis", {}, {A: CommittedOffset(5)}, {})

    assert "within one round.interval, or within three with at-least-once" in found.cure
    assert found.cure.endswith("winnow offsets migrate -c winnow.yaml --from kafka --to redis --force")


def test_the_findings_of_an_audit_have_no_content() -> None:
    """What they quote is left out; the command shows it."""
    found = Finding(Defect.CHANGED, Origin(A, 7), "clean-0@3", "expected 'SECRET', found 'SECRET'")
    strange = Finding(Defect.UNEXPLAINED, None, "clean-0@4", "no source record gives 'SECRET'")

    of_both = list(symptoms.of_audit([found, strange], Guarantee.EXACTLY_ONCE, 1_000))

    assert "SECRET" not in str(of_both)
    assert ["raw-0@7", "clean-0@4"] == [each.where for each in of_both]
    assert {"winnow audit -c winnow.yaml --from 1970-01-01T00:00:01.000Z"} == {each.cure for each in of_both}
    assert set(Defect) == symptoms.DEFECTS.keys()


def test_doubled_lines_are_expected_with_at_least_once() -> None:
    """A crash repeats what was written since the last save."""
    found = [Finding(kind, Origin(A, 7), "", "") for kind in (Defect.DOUBLED, Defect.LOST)]

    assert ["wrong", "wrong"] == [each.severity for each in symptoms.of_audit(found, Guarantee.EXACTLY_ONCE, 0)]
    assert ["warns", "wrong"] == [each.severity for each in symptoms.of_audit(found, Guarantee.AT_LEAST_ONCE, 0)]


PARTITION = {"topic": "raw", "partition": 0, "condition": "ok", "open_transaction_since": None, "last_stable": 40}


def test_what_a_running_service_says() -> None:
    """Its problems with their cures, its conditions, and the open transactions of the source's producers."""
    problems = [
        {"cause": "Kafka is away", "cure": "", "topic": None, "partition": None, "offset": None},
        {"cause": "stuck", "cure": "reset it", "topic": "raw", "partition": 0, "offset": 5},
    ]
    conditions = ("ok", "catching up", "stalled", "falling behind")
    partitions = [PARTITION | {"condition": each} for each in conditions]
    partitions += [PARTITION | {"open_transaction_since": 900.0}, PARTITION | {"open_transaction_since": 600.0}]
    document = {
        "now": 1500.0,
        "age": 500.0,  # since that look a transaction may have ended
        "not_alive": "",
        "not_ready": "no round",
        "problems": problems,
        "partitions": partitions,
    }

    found = list(symptoms.of_status(document, TOOLS))

    assert [
        ("warns", "the service", "the service is not ready: no round"),
        ("wrong", "the service", "Kafka is away"),
        ("wrong", "raw-0@5", "stuck"),
        ("wrong", "raw-0", "stalled: records wait, but its offset does not move"),
        ("warns", "raw-0", "falling behind: its lag grows"),
        ("warns", "raw-0@40", "records wait behind a transaction that a producer of the source opened 400 s ago"),
    ] == said(found)
    assert found[-1].cure.endswith("abort --topic raw --partition 0 --start-offset 40")


def test_an_older_service_lacks_some_of_it() -> None:
    """What it does not say is not wrong."""
    assert [] == list(symptoms.of_status({"now": 1.0, "partitions": [{"topic": "raw", "partition": 0}]}, TOOLS))


def test_the_worst_comes_first_and_each_once() -> None:
    """Equal symptoms become one with all its places."""
    found = [
        Symptom(Severity.WARNS, "w", "here", ""),
        Symptom(Severity.WRONG, "x", "raw-0", "mend it"),
        Symptom(Severity.UNKNOWN, "u", "lag", ""),
        Symptom(Severity.WRONG, "x", "raw-1", "mend it"),
        Symptom(Severity.WRONG, "x", "raw-0", "mend it"),
        Symptom(Severity.REFUSES, "r", "Kafka", ""),
    ]

    assert [
        ("refuses", "r", ["Kafka"], ""),
        ("wrong", "x", ["raw-0", "raw-1"], "mend it"),
        ("unknown", "u", ["lag"], ""),
        ("warns", "w", ["here"], ""),
    ] == list(map(tuple, gathered(found)))
