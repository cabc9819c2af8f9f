"""The store in HBase: its table, which several processes may create at once, and its history."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import happybase
import pytest
from Hbase_thrift import AlreadyExists
from Hbase_thrift import IOError as HBaseError

from app.errors import Unreachable
from app.model import CommittedOffset, Partition
from app.offsets import hbase
from app.offsets.contract import StoreContext
from app.offsets.hbase import HISTORY_SECONDS, HBaseOffsets
from tests.support.waiting import PATIENCE

MISSING = b"org.apache.hadoop.hbase.TableNotFoundException: winnow_offsets\n\tat org.apache.hadoop.hbase.client"
FASTER = b"org.apache.hadoop.hbase.TableExistsException: org.apache.hadoop.hbase.TableExistsException: winnow_offsets"


class Tables:
    """A connection to an empty table, which nobody had created a moment ago: another process was faster."""

    open = 0

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._missing = True
        Tables.open += 1

    def create_table(self, _name: str, _families: object) -> None:
        raise self._error

    def table(self, _name: str) -> Tables:
        return self

    def row(self, *_: object, **__: object) -> dict[bytes, bytes]:
        missing, self._missing = self._missing, False
        if missing:
            raise HBaseError(MISSING)
        return {}

    def scan(self, **_: object) -> list[object]:
        return []

    def close(self) -> None:
        Tables.open -= 1


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], HBaseOffsets]:
    def made(error: Exception) -> HBaseOffsets:
        monkeypatch.setattr(happybase, "Connection", lambda *_, **__: Tables(error))
        return HBaseOffsets(StoreContext("g", {}), host="here")

    return made


@pytest.mark.parametrize("error", [AlreadyExists("table name already in use"), HBaseError(FASTER)], ids=["late", "now"])
def test_another_process_creates_the_table_first(store: Any, error: Exception) -> None:
    """Both of the answers by which HBase says so are good news."""
    assert {} == store(error).load([Partition("raw", 0)], stable=True)


def test_a_table_that_cannot_be_created(store: Any) -> None:
    """Any other refusal is an outage, with HBase's words."""
    with pytest.raises(Unreachable, match="no region server is there"):
        store(HBaseError(b"no region server is there")).load([Partition("raw", 0)], stable=True)


def test_its_connections_are_closed(store: Any) -> None:
    """A store that was used leaves no connection behind."""
    used = store(AlreadyExists("table name already in use"))
    before = Tables.open
    used.load([Partition("raw", 0)], stable=True)
    assert Tables.open > before

    used.close()

    assert before == Tables.open


class Rows:
    """A connection to a table with rows."""

    name = b"winnow_offsets"

    def __init__(self) -> None:
        self.rows: dict[str, dict[bytes, bytes]] = {}
        self.connection = self.client = self
        self.asked: list[tuple[str, list[bytes] | None]] = []

    def tables(self) -> list[bytes]:
        raise TimeoutError("the master is away")

    def create_table(self, _name: str, _families: object) -> None:
        raise TimeoutError("the master is away")

    def table(self, _name: str) -> Rows:
        return self

    def row(self, key: str, columns: list[bytes] | None = None) -> dict[bytes, bytes]:
        self.asked.append((key, columns))
        cells = self.rows.get(key, {})
        return {column: value for column, value in cells.items() if columns is None or column in columns}

    def put(self, key: str, cells: dict[bytes, bytes]) -> None:
        self.rows.setdefault(key, {}).update(cells)

    def checkAndPut(self, _name: bytes, key: bytes, _column: bytes, _value: bytes, change: Any, _: object) -> bool:  # noqa: N802  # HBase's name
        self.put(key.decode(), {change.column: change.value})
        return True

    def scan(self, *, row_start: str, row_stop: str, limit: int, **_: object) -> list[tuple[bytes, object]]:
        self.asked.append((row_start, None))
        found = sorted((key for key in self.rows if row_stop < key <= row_start), reverse=True)
        return [(key.encode(), self.rows[key]) for key in found[:limit]]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("ahead", "kept"),
    [(-HISTORY_SECONDS, [2, 1]), (-1.0, [1]), (1.0, [1]), (86_400.0, [1, 2])],
    ids=["a minute ago", "a moment ago", "a moment ahead", "a day ahead"],
)
def test_a_row_of_the_history_a_minute(ahead: float, kept: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has kept one; clocks differ a little. One that was far ahead for once stops nothing."""
    table, partition, now = Rows(), Partition("raw", 0), 1_800_000_000.0
    monkeypatch.setattr(happybase, "Connection", lambda *_, **__: table)

    for offset, time in enumerate((now + ahead, now), 1):
        monkeypatch.setattr(hbase, "time", SimpleNamespace(time=lambda time=time: time, monotonic=lambda: 0.0))
        HBaseOffsets(StoreContext("g", {}), host="here").save(partition, offset, "")

    history = HBaseOffsets(StoreContext("g", {}), host="here").history("raw", 10)
    assert kept == [each.offsets[0] for each in history]


def test_what_is_no_partition_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another tool may have written a column whose digits Python takes for a number."""
    table = Rows()
    monkeypatch.setattr(happybase, "Connection", lambda *_, **__: table)
    table.rows["raw:g:1700000000000"] = {b"offsets:0": b"3", "offsets:\u0664".encode(): b"4", b"offsets:x": b"5"}

    (found,) = HBaseOffsets(StoreContext("g", {}), host="here").history("raw", 10)

    assert {0: 3} == found.offsets


def test_what_is_no_offset_stays_in_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """When its cell in the row `now` expires, the partition waits for a person still, instead of starting anew."""
    table, spoilt = Rows(), Partition("raw", 0)
    monkeypatch.setattr(happybase, "Connection", lambda *_, **__: table)
    table.rows["raw:g:now"] = {b"offsets:0": b"4x"}
    store = HBaseOffsets(StoreContext("g", {}), host="here")

    store.reset(Partition("raw", 1), 5, "")
    del table.rows["raw:g:now"][b"offsets:0"]

    assert store.load([spoilt], stable=True)[spoilt].corrupt


def test_only_what_is_needed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic may have thousands of partitions, and each row of the history has all of them."""
    table, saved, missing = Rows(), Partition("raw", 0), Partition("raw", 7)
    monkeypatch.setattr(happybase, "Connection", lambda *_, **__: table)
    table.rows["raw:g:now"] = {b"offsets:0": b"5", b"metadata:0": b"{}", b"offsets:1": b"6"}
    table.rows["raw:g:1700000000000"] = {b"offsets:0": b"3", b"offsets:7": b"4"}
    store = HBaseOffsets(StoreContext("g", {}), host="here")

    assert {saved: CommittedOffset(5)} == store.load([saved], stable=True)
    assert [("now", None), ("raw:g:now", [b"offsets:0", b"metadata:0"])] == table.asked

    assert {saved: CommittedOffset(5), missing: CommittedOffset(4)} == store.load([saved, missing], stable=True)
    assert ("raw:g:~", None) == table.asked[-1]

    table.asked.clear()
    monkeypatch.setattr(store, "_keep_history", lambda *_: None)
    store.save(saved, 6, "")
    assert [("raw:g:now", [b"offsets:0", b"metadata:0"])] == table.asked


def test_regions_answer_without_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task opens a store, and only the creation of a table needs the master."""
    monkeypatch.setattr(happybase, "Connection", lambda *_, **__: Rows())

    assert {} == HBaseOffsets(StoreContext("g", {}), host="here").load([Partition("raw", 0)], stable=True)


def test_threads_create_the_table_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, they would wait for a master that hangs for longer than the watchdog allows."""
    both = threading.Barrier(2)

    class Hanging(Tables):
        def create_table(self, _name: str, _families: object) -> None:
            both.wait(PATIENCE)
            raise TimeoutError("the master hangs")

    monkeypatch.setattr(happybase, "Connection", lambda *_, **__: Hanging(TimeoutError()))
    store = HBaseOffsets(StoreContext("g", {}), host="here")

    def load() -> None:
        with suppress(Unreachable):
            store.load([Partition("raw", 0)], stable=True)

    threads = [threading.Thread(target=load, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert not both.broken
