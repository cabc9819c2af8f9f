"""MySQL's client: whom it trusts, and which of its errors are an outage."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

import certifi
import pymysql
import pytest

from app.errors import Fenced, NotAllowed, NotUsable, Unreachable
from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from app.offsets.mysql import MySqlOffsets

RAW = Partition("raw", 0)


def store(**options: Any) -> MySqlOffsets:
    return MySqlOffsets(StoreContext("group", {}), host="nowhere", user="u", database="d", **options)


def test_with_trusted_certificates_the_server_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyMySQL does not verify it unless it is told to, whatever certificates it is given."""
    real, made = pymysql.connect, list[Any]()

    def connect(**settings: Any) -> None:
        made.append(real(**settings, defer_connect=True))
        raise pymysql.OperationalError(2003, "Can't connect")

    monkeypatch.setattr(pymysql, "connect", connect)

    with pytest.raises(Unreachable):
        store(ssl_ca=certifi.where()).load([RAW], stable=True)

    assert [ssl.CERT_REQUIRED] == [each.ctx.verify_mode for each in made]


def test_certificates_that_are_not_there() -> None:
    """A mistake of the configuration, or the moment of a rotation: nothing is known of the server."""
    with pytest.raises(Unreachable, match=r"^ssl\.ca of the offset store cannot be read .*No such file"):
        store(ssl_ca="/not/there").load([RAW], stable=True)


def untrusted() -> pymysql.OperationalError:
    """Return what PyMySQL raises if the server's certificate is signed by another authority."""
    error = pymysql.OperationalError(2003, "Can't connect: certificate verify failed")
    error.original_exception = ssl.SSLCertVerificationError("certificate verify failed")  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("raised", "error", "said"),
    [
        (pymysql.OperationalError(2003, "Can't connect"), Unreachable, "not responding"),
        (pymysql.OperationalError(1047, "WSREP has not yet prepared node for application use"), Unreachable, "WSREP"),
        (pymysql.OperationalError(1226, "User 'u' has exceeded the 'max_user_connections'"), Unreachable, "exceeded"),
        (pymysql.OperationalError(1041, "Out of memory"), Unreachable, "memory"),
        (pymysql.OperationalError(1158, "Got an error reading communication packets"), Unreachable, "packets"),
        (pymysql.OperationalError(1969, "max_statement_time exceeded"), Unreachable, "max_statement_time"),
        (pymysql.OperationalError(3024, "maximum statement execution time exceeded"), Unreachable, "maximum"),
        (pymysql.OperationalError(1927, "Connection was killed"), Unreachable, "killed"),
        (pymysql.OperationalError(4031, "disconnected by the server because of inactivity"), Unreachable, "inactivity"),
        (pymysql.ProgrammingError(1146, "Table 'd.t' doesn't exist"), Unreachable, "doesn't exist"),
        (pymysql.OperationalError(1054, "Unknown column 'topic'"), NotUsable, "check the offset store"),
        (untrusted(), NotAllowed, "set ssl.ca of the offset store"),
    ],
)
def test_an_outage_is_no_mistake(
    raised: Exception, error: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage is waited for; the others need an operator."""

    def connect(**_: object) -> None:
        raise raised

    monkeypatch.setattr(pymysql, "connect", connect)

    with pytest.raises(error, match=said):
        store().load([RAW], stable=True)


class Server:
    """A connection to a server with one table, which may be dropped."""

    def __init__(self) -> None:
        self.has_table = False
        self.verbs = list[str]()
        self.values = list[Any]()
        self.rows = list[tuple[object, ...]]()

    def cursor(self) -> contextlib.nullcontext[Server]:
        return contextlib.nullcontext(self)

    def execute(self, statement: str, values: object = None) -> None:
        verb = " ".join(statement.split()[:2])
        self.verbs.append(verb)
        self.values.append(values)
        if verb == "CREATE TABLE":
            self.has_table = True
        elif verb != "SHOW TABLES" and not self.has_table:
            raise pymysql.ProgrammingError(1146, "Table 'd.winnow_offsets' doesn't exist")

    def fetchone(self) -> object:
        return ("winnow_offsets",) if self.has_table else None

    def fetchall(self) -> list[tuple[object, ...]]:
        return self.rows

    def commit(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_dropped_table_is_created_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The running service then finds that its offsets have vanished; one that ended would start over in silence."""
    server = Server()
    monkeypatch.setattr(pymysql, "connect", lambda **_: server)
    opened = store()
    assert {} == opened.load([RAW], stable=True)

    server.has_table = False
    with pytest.raises(Unreachable, match="doesn't exist"):
        opened.load([RAW], stable=True)

    assert {} == opened.load([RAW], stable=True)
    assert server.has_table


def test_going_back_deletes_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may only read and write needs no right to delete, which REPLACE does."""
    server = Server()
    monkeypatch.setattr(pymysql, "connect", lambda **_: server)

    store().reset(RAW, 5, "")

    assert ["SHOW TABLES", "CREATE TABLE", "INSERT INTO"] == server.verbs


def test_a_number_that_another_tool_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata beside it is that of another offset: `UPDATE` changes one column."""
    server = Server()
    monkeypatch.setattr(pymysql, "connect", lambda **_: server)
    server.rows = [(*RAW, 42, "m at=41")]

    with pytest.raises(Fenced):
        store().save(RAW, 41, "m")
    assert "m at=41" == server.values[-2][-1]
    store().reset(RAW, 41, "n")
    assert "n at=41" == server.values[-1][-1]
    assert {RAW: CommittedOffset(42)} == store().load([RAW], stable=True)
