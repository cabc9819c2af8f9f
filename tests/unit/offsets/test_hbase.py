"""The table of the store in HBase, which several processes may create at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import happybase
import pytest
from Hbase_thrift import AlreadyExists
from Hbase_thrift import IOError as HBaseError

from app.errors import Unreachable
from app.model import Partition
from app.offsets.contract import StoreContext
from app.offsets.hbase import HBaseOffsets

FASTER = b"org.apache.hadoop.hbase.TableExistsException: org.apache.hadoop.hbase.TableExistsException: winnow_offsets"


class Tables:
    """A connection to an empty table, which nobody had created a moment ago."""

    open = 0

    def __init__(self, error: Exception) -> None:
        self._error = error
        Tables.open += 1

    def tables(self) -> list[bytes]:
        return []

    def create_table(self, _name: str, _families: object) -> None:
        raise self._error

    def table(self, _name: str) -> Tables:
        return self

    def row(self, *_: object) -> dict[bytes, bytes]:
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
