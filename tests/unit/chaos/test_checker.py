"""The checker finds each anomaly that a test plants in a history, and none in a clean one."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos.checker import judge, telling
from tests.chaos.grouped import NOBODY, Fault, History
from tests.chaos.history import Event, Recorder, events
from tests.chaos.report import report, told_after
from tests.chaos.run import KINDS_OF_FINDINGS
from tests.chaos.waits import idle_windows, pauses, stalls

Plant = Callable[[list[Event]], None]


def read(reader: str, role: str, *runs: list[object], at: float = 3.0) -> Event:
    return {"at": at, "kind": "read", "reader": reader, "role": role, "partition": 0, "runs": list(runs)}


def closed(reader: str, transaction: str, count: int) -> Event:
    return {"at": 3.0, "kind": "closed", "reader": reader, "transaction": transaction, "count": count}


def clean() -> list[Event]:
    """Ten lines of stream 0, number 4 bad; two of stream 1 aborted; one of stream 1 with an unknown outcome."""
    log: list[Event] = [
        {"at": 0.0, "kind": "setup", "seed": 1},
        {"at": 1.0, "kind": "write", "stream": 0, "first": 0, "count": 10, "bad": [4], "outcome": "ok"},
        {"at": 1.1, "kind": "write", "stream": 1, "first": 0, "count": 2, "bad": [], "outcome": "aborted"},
        {"at": 1.2, "kind": "write", "stream": 1, "first": 2, "count": 1, "bad": [], "outcome": "unknown"},
        {"at": 2.0, "kind": "committed", "offsets": {"0": 4}},
        {"at": 2.5, "kind": "committed", "offsets": {"0": 10}},
    ]
    for reader in ("live", "final"):
        log += [
            read(reader, "sink", [0, 0, 0, 4, "t1"]),
            closed(reader, "t1", 4),
            read(reader, "sink", [5, 0, 5, 5, "t2"]),
            read(reader, "dead", [0, 0, 4, 1, "t2"]),
            closed(reader, "t2", 6),
        ]
    return [*log, {"at": 9.0, "kind": "finished", "rows": [["sink", 0, 12, 12], ["dead", 0, 4, 4]]}]


def find(log: list[Event], kind: str, **wanted: object) -> Event:
    return next(e for e in log if e["kind"] == kind and all(e[key] == value for key, value in wanted.items()))


def lose(log: list[Event]) -> None:
    for reader in ("live", "final"):
        find(log, "read", reader=reader, role="sink")["runs"] = [[0, 0, 0, 3, "t1"]]
        find(log, "closed", reader=reader)["count"] = 3


def double(log: list[Event]) -> None:
    log.insert(-1, read("live", "sink", [12, 0, 2, 1, "t3"]))
    log.insert(-1, closed("live", "t3", 1))


def double_across_topics(log: list[Event]) -> None:
    log.insert(-1, read("live", "sink", [12, 0, 4, 1, "t3"]))
    log.insert(-1, closed("live", "t3", 1))


def reorder(log: list[Event]) -> None:
    find(log, "read", reader="live", role="sink")["runs"] = [
        [0, 0, 0, 1, "t1"],
        [1, 0, 2, 2, "t1"],
        [3, 0, 1, 1, "t1"],
    ]


def write_as_zombie(log: list[Event]) -> None:
    log.insert(-1, {"at": 2.0, "kind": "taken over", "zombie": "z.", "successor": "s."})
    log.insert(-1, read("final", "sink", [12, 1, 2, 1, "s.t3"], [13, 0, 5, 1, "z.t4"]))
    log.insert(-1, closed("final", "s.t3", 1))
    log.insert(-1, closed("final", "z.t4", 1))


def read_aborted(log: list[Event]) -> None:
    log.insert(-1, read("final", "sink", [12, 1, 1, 1, "t3"]))
    log.insert(-1, closed("final", "t3", 1))


def invent(log: list[Event]) -> None:
    log.insert(-1, read("final", "sink", [12, 0, 99, 1, "t3"]))
    log.insert(-1, closed("final", "t3", 1))


def misplace(log: list[Event]) -> None:
    find(log, "write", stream=0)["bad"] = []


def alter(log: list[Event]) -> None:
    find(log, "read", reader="live", role="sink")["altered"] = ["sink-0@2"]


def tear(log: list[Event]) -> None:
    find(log, "closed", reader="live", transaction="t2")["count"] = 7


def tear_before_the_count(log: list[Event]) -> None:
    log.remove(find(log, "closed", reader="live", transaction="t2"))


def move_back(log: list[Event]) -> None:
    log.insert(-1, {"at": 2.6, "kind": "committed", "offsets": {"0": 9}})


def read_again(log: list[Event]) -> None:
    find(log, "read", reader="final", role="dead")["runs"] = [[3, 0, 4, 1, "t2"], [3, 0, 4, 0, "t2"]]


def differ(log: list[Event]) -> None:
    """Let a reader get lines 2 and 3 in the other order."""
    find(log, "read", reader="live", role="sink")["runs"] = [[0, 0, 0, 2, "t1"], [2, 0, 3, 1, "t1"], [3, 0, 2, 1, "t1"]]


def differ_in_a_header(log: list[Event]) -> None:
    find(log, "read", reader="live", role="sink")["hashes"] = {"0": 7, "2": 8}
    find(log, "read", reader="final", role="sink")["hashes"] = {"0": 7, "2": 9, "3": 10}


def skip(log: list[Event]) -> None:
    """Let a reader get three of the five dead letters, and the other one what the first has not reached."""
    log.insert(-1, read("live", "dead", [1, 1, 7, 1, "t3"], [4, 1, 8, 2, "t3"]))
    log.insert(-1, read("final", "dead", [1, 1, 7, 1, "t3"], [2, 1, 9, 2, "t3"], [4, 1, 8, 1, "t3"]))


def leave_open(log: list[Event]) -> None:
    find(log, "finished")["rows"][0] = ["sink", 0, 11, 12]


def fault(told: str = "", name: str = "wrong password") -> list[Event]:
    """Return a fault from 4 to 6 s that the log must tell."""
    return [
        {"at": 4.5, "kind": "fault", "name": name, "target": "1", "began": 4.0, "told": told, "state": {}},
        {"at": 6.0, "kind": "healed", "name": name, "target": "1"},
    ]


def said(at: float, error: str) -> Event:
    return {"at": at, "kind": "said", "service_event": "kafka_unavailable", "service_reason": error}


def say_nothing(log: list[Event]) -> None:
    log[-1:-1] = [*fault("refuses us"), said(5, "Kafka does not answer")]


def say_it_too_late(log: list[Event]) -> None:
    log[-1:-1] = [*fault("refuses us"), said(60, "Kafka refuses us")]


def hold_up(log: list[Event]) -> None:
    log[-1:-1] = [{"at": 40.0, "kind": "harmed", "since": 5.0, "partitions": [1]}, *fault()]
    find(log, "healed")["at"] = 41.0
    log.insert(-1, read("first", "sink", [99, 0, 9, 0, ""], at=20.0))


def see(anomaly: str) -> Plant:
    return lambda log: log.insert(-1, {"at": 5.0, "kind": "seen", "anomaly": anomaly, "what": "partition 3"})


def lose_and_keep_in_the_source(log: list[Event]) -> None:
    lose(log)
    log.insert(-1, {"at": 8.0, "kind": "kept", "runs": [[0, 0, 4]]})


def audited(**counts: int) -> Event:
    """Return the verdict of an audit that found nothing but these."""
    nothing = dict.fromkeys([*KINDS_OF_FINDINGS, "not_judged"], 0)
    return {"at": 9.5, "kind": "audited", "code": 0, "counts": nothing | counts, "words": ""}


def audit(**counts: int) -> Plant:
    return lambda log: log.append(audited(**counts))


def lose_unnoticed(log: list[Event]) -> None:
    lose(log)
    log.append(audited())


def double_unnoticed(log: list[Event]) -> None:
    log += [read("final", "sink", [12, 0, 2, 1, "t3"]), closed("final", "t3", 1), audited(doubled=2)]


def plant_unnoticed(log: list[Event]) -> None:
    log += [
        {"at": 8.0, "kind": "planted", "stream": 9, "number": 1},
        read("final", "sink", [12, 9, 1, 1, ""]),
        audited(),
    ]


def fail_to_audit(log: list[Event]) -> None:
    log.append({"at": 9.5, "kind": "audited", "code": 3, "counts": {}, "words": "winnow: Kafka does not answer"})


def double_what_was_saved(log: list[Event]) -> None:
    deliver_at_least_once(log, saved_at=4.0)


def go_back_after_another_reset(log: list[Event]) -> None:
    log.insert(-1, {"at": 2.55, "kind": "reset", "partition": "1"})
    move_back(log)


PLANTED: dict[str, tuple[Plant, str, int]] = {
    "a line is missing": (lose, "lost", 2),
    "a line is read twice": (double, "duplicated", 1),
    "a line is in both topics": (double_across_topics, "duplicated", 1),
    "a line is late": (reorder, "reordered", 1),
    "an aborted line is read": (read_aborted, "aborted read", 1),
    "an unknown line is read": (invent, "phantom", 1),
    "a good line is among the dead letters": (misplace, "misplaced", 2),
    "a line has the wrong content": (alter, "misplaced", 1),
    "a transaction is not complete": (tear, "torn transaction", 1),
    "a transaction has no last record": (tear_before_the_count, "torn transaction", 1),
    "a stopped worker writes after its successor": (write_as_zombie, "zombie record", 1),
    "the committed offset decreases": (move_back, "offset moved back", 1),
    "an offset is read again": (read_again, "offset read twice", 1),
    "two readers get different lines": (differ, "readers differ", 2),
    "two readers get different records": (differ_in_a_header, "readers differ", 1),
    "a reader passes what another one gets": (skip, "skipped", 2),
    "a transaction is left open": (leave_open, "open transaction", 1),
    "a line is missing that the source still holds": (lose_and_keep_in_the_source, "lost", 2),
    "another partition's offset was set": (go_back_after_another_reset, "offset moved back", 1),
    "a fault is not told": (say_nothing, "silent", 1),
    "a fault is told when it is over": (say_it_too_late, "silent", 1),
    "another partition's fault holds readers up": (hold_up, "held up", 1),
    "a partition stands still": (see("stuck"), "stuck", 1),
    "a deleted topic is there again": (see("came back"), "came back", 1),
    "the service ends without a word": (see("crashed"), "crashed", 1),
    "a service loses its work to another one": (see("displaced"), "displaced", 1),
    "the views of a service differ": (see("disagree"), "disagree", 1),
    "nobody knows for how long records wait": (see("unknown"), "unknown", 1),
    "the audit misses a lost line": (lose_unnoticed, "disagree", 1),
    "the audit finds a copy too many": (double_unnoticed, "disagree", 1),
    "the audit misses a stranger's line": (plant_unnoticed, "disagree", 1),
    "the audit finds lines out of order": (audit(out_of_order=1), "disagree", 1),
    "the audit finds a line changed": (audit(changed=1), "disagree", 1),
    "the audit leaves records out": (audit(not_judged=1), "disagree", 1),
    "the audit gives no verdict": (fail_to_audit, "disagree", 1),
    "a line comes again whose offset was saved": (double_what_was_saved, "duplicated", 1),
}


def found(log: list[Event]) -> dict[str, int]:
    return {finding.name: finding.times for finding in judge(History.of(log)) if finding.times}


def test_a_clean_history_has_no_anomaly() -> None:
    """Aborted lines that nobody reads, and lines of unknown outcome, are no anomaly."""
    assert {} == found(clean())


@pytest.mark.parametrize(("plant", "name", "count"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_anomaly_is_found(plant: Plant, name: str, count: int) -> None:
    """Each anomaly is found under its name, with an example."""
    log = clean()

    plant(log)

    assert found(log).get(name) == count
    (finding,) = [finding for finding in judge(History.of(log)) if finding.name == name]
    assert finding.examples


def test_an_audit_that_agrees() -> None:
    """The audit finds what the checker finds, and the lines that the harness itself has added."""
    log = clean()
    for number, stream in ((2, 0), (1, 9)):
        log.insert(-1, {"at": 8.0, "kind": "planted", "stream": stream, "number": number})
        for reader in ("live", "final"):
            log.insert(-1, read(reader, "sink", [12 + stream, stream, number, 1, ""]))
    log.append(audited(doubled=1, unexplained=1))

    assert {} == found(log)


def test_what_is_not_done_is_not_lost_for_the_audit() -> None:
    """Where the service stood still before the end, the checker misses lines that the audit does not judge."""
    log = clean()
    lose(log)
    log += [{"at": 8.5, "kind": "not drained", "lag": 1}, audited()]

    assert {"lost": 2} == found(log)


def deliver_at_least_once(log: list[Event], *, saved_at: float) -> None:
    """Write line 2 again between the looks at 5 and 6 s; its offset is seen saved at another time."""
    log[0]["may_double"] = True
    log[1:1] = [{"at": float(at), "kind": "marks", "rows": [["sink", 0, high, high]]} for at, high in LOOKS]
    log.remove(find(log, "committed", offsets={"0": 4}))
    find(log, "committed", offsets={"0": 10})["at"] = saved_at
    log.insert(-1, {"at": 8.0, "kind": "kept", "partition": 0, "offset": 0, "runs": [[0, 0, 10]]})
    log.insert(-1, read("live", "sink", [12, 0, 2, 1, "t3"]))


LOOKS = ((3, 4), (4, 12), (5, 12), (6, 13))


def test_a_copy_of_what_was_not_saved() -> None:
    """At least once, a line may come again as long as its offset is not saved, and transactions may be torn."""
    log = clean()

    deliver_at_least_once(log, saved_at=4.5)

    assert {} == found(log)


def test_an_unknown_outcome_may_be_read() -> None:
    """A line whose writer does not know the outcome may be read once."""
    log = clean()
    for reader in ("live", "final"):
        log.insert(-1, read(reader, "sink", [12, 1, 2, 1, "t3"]))
        log.insert(-1, closed(reader, "t3", 1))

    assert {} == found(log)


def test_a_fault_that_is_told() -> None:
    """One line of the log that matches, while the fault lasts or just after, is enough; others need none."""
    log = clean()
    log[-1:-1] = [*fault("refuses us"), *fault(name="size refused"), said(5, "Kafka refuses us: bad password")]

    history = History.of(log)

    assert {} == found(log)
    first, other = history.faults
    assert 5 == told_at(history, first)
    assert {"wrong password": [0.5]} == told_after(history)
    assert told_at(history, other) is None


def told_at(history: History, one: Fault) -> float | None:
    line = telling(history, one)
    return line and line.at


def test_a_line_that_kafka_has_cut_is_not_lost() -> None:
    """What the source does not hold at the end is not the service's loss; it may be in the output, too."""
    log = clean()
    lose(log)
    log.insert(-1, {"at": 8.0, "kind": "kept", "runs": [[0, 0, 2], [0, 4, 6]]})

    assert {} == found(log)


def test_a_refusable_line_may_be_in_either_topic() -> None:
    """A good line that a broker may refuse is in the sink or among the dead letters, and there only once."""
    log = clean()
    written = find(log, "write", stream=0)
    written["bad"], written["either"] = [], [4]
    assert {} == found(log)

    double_across_topics(log)

    assert 1 == found(log)["duplicated"]


def test_an_offset_that_an_operator_has_set() -> None:
    """A committed offset may go back where somebody has set it, at about that time."""
    log = clean()
    log.insert(-1, {"at": 2.55, "kind": "reset", "partition": "0"})
    move_back(log)

    assert {} == found(log)


def test_how_long_the_spared_waited() -> None:
    """The pause of the spared partitions counts while the others are harmed, as a whole and after the elections."""
    log = fault()
    log[0]["began"], log[0]["at"], log[1]["at"] = 10.0, 11.0, 60.0
    log.insert(1, {"at": 40.0, "kind": "harmed", "since": 11.0, "partitions": [1]})
    for partition, times in {0: (9, 12, 19, 23, 30, 39, 55), 1: (10, 59)}.items():
        log += [read("first", "sink", [at, 0, at, 1, ""], at=float(at)) | {"partition": partition} for at in times]

    (pause,) = pauses(History.of(log))

    assert (9, 9) == (pause.whole, pause.settled)
    assert 7 == pauses(History.of(log), settling=12.5)[0].settled - 2


def marks(*samples: tuple[float, int, int]) -> list[Event]:
    return [{"at": at, "kind": "marks", "rows": [["sink", 0, stable, high]]} for at, stable, high in samples]


def test_a_stalled_reader() -> None:
    """A stall lasts from a write until it can be read; its part after the repair is counted separately."""
    log = marks((0, 5, 5), (1, 5, 6), (2, 5, 7), (9, 5, 20), (10, 20, 20), (11, 20, 20))
    log += [
        {"at": 1.5, "kind": "fault", "name": "broker killed", "target": "1", "began": 0.5, "state": {}},
        {"at": 7.0, "kind": "healed", "name": "broker killed", "target": "1"},
    ]

    (stall,) = stalls(History.of(log))

    assert ("sink-0", 1, 10) == stall[:3]
    assert 3 == stall.after_repair
    assert 9 == stall.seconds


def test_a_stall_that_ends_before_the_repair() -> None:
    """A stall that ends while a broker is still down has no part after its repair."""
    log = marks((0, 5, 6), (8, 7, 7))
    log += [
        {"at": 0.5, "kind": "fault", "name": "broker killed", "target": "1", "began": 0.5, "state": {}},
        {"at": 20.0, "kind": "healed", "name": "broker killed", "target": "1"},
    ]

    (stall,) = stalls(History.of(log))

    assert (8, 0) == (stall.seconds, stall.after_repair)


def test_a_stall_that_never_ends() -> None:
    """A stall that is not over at the end of the history lasts until there."""
    assert [30] == [stall.seconds for stall in stalls(History.of(marks((0, 5, 6), (30, 5, 6))))]


def test_steady_progress_is_no_stall() -> None:
    """The stable offset may lag behind, as long as it advances."""
    assert [] == stalls(History.of(marks((0, 5, 9), (0.5, 8, 12), (1, 11, 15))))


def test_windows_without_progress() -> None:
    """A minute in which lines were written but none was read is reported."""
    log: list[Event] = [
        {"at": float(at), "kind": "write", "stream": 0, "first": at, "count": 1, "bad": [], "outcome": "ok"}
        for at in (10, 70, 130, 185)
    ]
    log += [read("live", "sink", [0, 0, 10, 1, ""], at=50.0), read("live", "sink", [1, 0, 70, 1, ""], at=150.0)]

    assert [60.0] == idle_windows(History.of(log))


def test_a_kill_that_met_nobody_is_not_counted() -> None:
    """A failpoint that nobody passed, and a kill without a victim, have killed nothing."""
    faults = ("worker killed", "7"), ("worker killed", NOBODY), ("killed before-commit", NOBODY)
    log: list[Event] = [
        {"at": 1.0, "kind": "fault", "name": name, "target": target, "began": 1.0} for name, target in faults
    ]
    said = io.StringIO()

    report(History.of(log), Console(file=said))

    assert "kills: 1: 1 worker killed\n" in said.getvalue()


def strike(name: str, target: str = "7", *, missed: bool = False) -> list[Event]:
    log: list[Event] = [{"at": 1.0, "kind": "fault", "name": name, "target": target, "began": 1.0}]
    return log + ([{"at": 2.0, "kind": "missed", "name": name, "why": "nothing was held"}] if missed else [])


def test_faults_that_met_nobody_prove_nothing() -> None:
    """Each fault of a kind has met nobody, as a target or as it turned out; where one met somebody, the rest may miss."""
    log = clean()
    log += [*strike("worker killed", NOBODY), *strike("worker killed")]
    log += [*strike("killed before-commit", NOBODY), *strike("EndTxn held", "30%", missed=True)]
    said = io.StringIO()

    assert {"harmed nobody": 2} == found(log)
    assert report(History.of(log), Console(file=said, width=140))
    assert re.search(r"worker killed +│ 2 +│ 1 ", said.getvalue())


def test_what_nobody_has_read_proves_nothing() -> None:
    """A history that ends too early has no anomaly in it, and neither has one without a reader."""
    assert {"unfinished": 2} == found([])
    assert {"unfinished": 1} == found(clean()[:-1])
    assert 1 == found([event for event in clean() if event.get("reader") != "final"])["unfinished"]


def test_a_history_can_be_checked_again(tmp_path: Path) -> None:
    """A history can be read as it was recorded, in order and with times."""
    with Recorder(tmp_path / "history.jsonl.gz") as recorder:
        recorder.record("setup", seed=7)
        recorder.record("committed", offsets={"0": 1})

    first, second = events(tmp_path / "history.jsonl.gz")

    assert {"kind": "setup", "seed": 7} == {key: first[key] for key in ("kind", "seed")}
    assert {"0": 1} == second["offsets"]
    assert first["at"] <= second["at"]
