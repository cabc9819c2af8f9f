"""The checker of chaos runs: it finds each anomaly that is planted in a history, and nothing in a clean one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.checker import History, idle_windows, judge, stalls
from tests.chaos.history import Event, Recorder, events

Plant = Callable[[list[Event]], None]


def read(reader: str, role: str, *runs: list[object], at: float = 3.0) -> Event:
    return {"at": at, "kind": "read", "reader": reader, "role": role, "partition": 0, "runs": list(runs)}


def closed(reader: str, transaction: str, count: int) -> Event:
    return {"at": 3.0, "kind": "closed", "reader": reader, "transaction": transaction, "count": count}


def clean() -> list[Event]:
    """Ten lines of stream 0, number 4 bad; two of stream 1 aborted; one of stream 1 with an unknown outcome."""
    told: list[Event] = [
        {"at": 0.0, "kind": "setup", "seed": 1},
        {"at": 1.0, "kind": "write", "stream": 0, "first": 0, "count": 10, "bad": [4], "outcome": "ok"},
        {"at": 1.1, "kind": "write", "stream": 1, "first": 0, "count": 2, "bad": [], "outcome": "aborted"},
        {"at": 1.2, "kind": "write", "stream": 1, "first": 2, "count": 1, "bad": [], "outcome": "unknown"},
        {"at": 2.0, "kind": "committed", "offsets": {"0": 4}},
        {"at": 2.5, "kind": "committed", "offsets": {"0": 10}},
    ]
    for reader in ("live", "final"):
        told += [
            read(reader, "sink", [0, 0, 0, 4, "t1"]),
            closed(reader, "t1", 4),
            read(reader, "sink", [5, 0, 5, 5, "t2"]),
            read(reader, "dead", [0, 0, 4, 1, "t2"]),
            closed(reader, "t2", 6),
        ]
    return [*told, {"at": 9.0, "kind": "finished", "rows": [["sink", 0, 12, 12], ["dead", 0, 4, 4]]}]


def find(told: list[Event], kind: str, **wanted: object) -> Event:
    return next(e for e in told if e["kind"] == kind and all(e[key] == value for key, value in wanted.items()))


def lose(told: list[Event]) -> None:
    find(told, "read", reader="final", role="sink")["runs"] = [[0, 0, 0, 3, "t1"]]
    find(told, "closed", reader="final")["count"] = 3


def double(told: list[Event]) -> None:
    told.insert(-1, read("live", "sink", [12, 0, 2, 1, "t3"]))
    told.insert(-1, closed("live", "t3", 1))


def double_across_topics(told: list[Event]) -> None:
    told.insert(-1, read("live", "sink", [12, 0, 4, 1, "t3"]))
    told.insert(-1, closed("live", "t3", 1))


def reorder(told: list[Event]) -> None:
    find(told, "read", reader="live", role="sink")["runs"] = [
        [0, 0, 0, 1, "t1"],
        [1, 0, 2, 2, "t1"],
        [3, 0, 1, 1, "t1"],
    ]


def rise(told: list[Event]) -> None:
    told.insert(-1, {"at": 2.0, "kind": "taken over", "zombie": "z.", "successor": "h."})
    told.insert(-1, read("final", "sink", [12, 1, 2, 1, "h.t3"], [13, 0, 5, 1, "z.t4"]))
    told.insert(-1, closed("final", "h.t3", 1))
    told.insert(-1, closed("final", "z.t4", 1))


def read_aborted(told: list[Event]) -> None:
    told.insert(-1, read("final", "sink", [12, 1, 1, 1, "t3"]))
    told.insert(-1, closed("final", "t3", 1))


def invent(told: list[Event]) -> None:
    told.insert(-1, read("final", "sink", [12, 0, 99, 1, "t3"]))
    told.insert(-1, closed("final", "t3", 1))


def misplace(told: list[Event]) -> None:
    find(told, "write", stream=0)["bad"] = []


def alter(told: list[Event]) -> None:
    find(told, "read", reader="live", role="sink")["altered"] = ["sink-0@2"]


def tear(told: list[Event]) -> None:
    find(told, "closed", reader="live", transaction="t2")["count"] = 7


def tear_before_the_count(told: list[Event]) -> None:
    told.remove(find(told, "closed", reader="live", transaction="t2"))


def move_back(told: list[Event]) -> None:
    told.insert(-1, {"at": 2.6, "kind": "committed", "offsets": {"0": 9}})


def give_again(told: list[Event]) -> None:
    find(told, "read", reader="final", role="dead")["runs"] = [[3, 0, 4, 1, "t2"], [3, 0, 4, 0, "t2"]]


def leave_open(told: list[Event]) -> None:
    find(told, "finished")["rows"][0] = ["sink", 0, 11, 12]


PLANTED: dict[str, tuple[Plant, str, int]] = {
    "a line is missing": (lose, "lost", 1),
    "a line comes twice": (double, "duplicated", 1),
    "a line comes in both topics": (double_across_topics, "duplicated", 1),
    "a line comes late": (reorder, "reordered", 1),
    "an aborted line comes": (read_aborted, "aborted read", 1),
    "an unknown line comes": (invent, "phantom", 1),
    "a good line is among the dead letters": (misplace, "misplaced", 2),
    "a line has another content": (alter, "misplaced", 1),
    "a transaction is not complete": (tear, "torn transaction", 1),
    "a transaction ends too early": (tear_before_the_count, "torn transaction", 1),
    "a stopped worker writes after its successor": (rise, "zombie record", 1),
    "the group's offset goes back": (move_back, "offset moved back", 1),
    "an offset is given again": (give_again, "offset read twice", 1),
    "something is left open": (leave_open, "open transaction", 1),
}


def found(told: list[Event]) -> dict[str, int]:
    return {finding.name: finding.times for finding in judge(History.of(told)) if finding.times}


def test_a_clean_history_has_no_anomaly() -> None:
    """Aborted lines that nobody read and lines of unknown outcome are no fault."""
    assert {} == found(clean())


@pytest.mark.parametrize(("plant", "name", "count"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_anomaly_is_found(plant: Plant, name: str, count: int) -> None:
    """Each anomaly is found under its name, with where it was seen."""
    told = clean()

    plant(told)

    assert found(told).get(name) == count
    (finding,) = [finding for finding in judge(History.of(told)) if finding.name == name]
    assert finding.examples


def test_an_unknown_outcome_may_be_read() -> None:
    """A line whose writer does not know its fate may come out, once."""
    told = clean()
    for reader in ("live", "final"):
        told.insert(-1, read(reader, "sink", [12, 1, 2, 1, "t3"]))
        told.insert(-1, closed(reader, "t3", 1))

    assert {} == found(told)


def marks(*samples: tuple[float, int, int]) -> list[Event]:
    return [{"at": at, "kind": "marks", "rows": [["sink", 0, stable, high]]} for at, stable, high in samples]


def test_a_stalled_reader() -> None:
    """A stall lasts from when more was written to when it could be read; what follows the repair is told apart."""
    told = marks((0, 5, 5), (1, 5, 6), (2, 5, 7), (9, 5, 20), (10, 20, 20), (11, 20, 20))
    told += [
        {"at": 1.5, "kind": "fault", "name": "broker killed", "target": "1", "state": {}},
        {"at": 7.0, "kind": "healed", "name": "broker killed", "target": "1"},
    ]

    (stall,) = stalls(History.of(told))

    assert ("sink-0", 1, 10) == stall[:3]
    assert 3 == stall.after_repair
    assert 9 == stall.seconds


def test_a_stall_that_ends_before_the_repair() -> None:
    """What the others put right while a broker is still away did not wait for its repair."""
    told = marks((0, 5, 6), (8, 7, 7))
    told += [
        {"at": 0.5, "kind": "fault", "name": "broker killed", "target": "1", "state": {}},
        {"at": 20.0, "kind": "healed", "name": "broker killed", "target": "1"},
    ]

    (stall,) = stalls(History.of(told))

    assert (8, 0) == (stall.seconds, stall.after_repair)


def test_a_stall_that_never_ends() -> None:
    """What is still held back at the end counts up to there."""
    assert [30] == [stall.seconds for stall in stalls(History.of(marks((0, 5, 6), (30, 5, 6))))]


def test_steady_progress_is_no_stall() -> None:
    """The stable offset may lag as long as it moves."""
    assert [] == stalls(History.of(marks((0, 5, 9), (0.5, 8, 12), (1, 11, 15))))


def test_windows_without_progress() -> None:
    """A minute in which lines were written and none came out is named."""
    told: list[Event] = [
        {"at": float(at), "kind": "write", "stream": 0, "first": at, "count": 1, "bad": [], "outcome": "ok"}
        for at in (10, 70, 130, 185)
    ]
    told += [read("live", "sink", [0, 0, 10, 1, ""], at=50.0), read("live", "sink", [1, 0, 70, 1, ""], at=150.0)]

    assert [60.0] == idle_windows(History.of(told))


def test_a_history_can_be_checked_again(tmp_path: Path) -> None:
    """What was recorded is what is read, in order and with times."""
    with Recorder(tmp_path / "history.jsonl.gz") as recorder:
        recorder.record("setup", seed=7)
        recorder.record("committed", offsets={"0": 1})

    first, second = events(tmp_path / "history.jsonl.gz")

    assert {"kind": "setup", "seed": 7} == {key: first[key] for key in ("kind", "seed")}
    assert {"0": 1} == second["offsets"]
    assert first["at"] <= second["at"]
