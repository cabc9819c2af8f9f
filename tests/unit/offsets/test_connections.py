"""A pool of connections that serve one thread at a time."""

from __future__ import annotations

import pytest

from app.offsets import connections as module
from app.offsets.connections import Connections


class ClosableConnection:
    """A connection that knows whether it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_a_connection_is_used_again() -> None:
    """A call borrows the idle connection; concurrent calls have one each."""
    connections = Connections(ClosableConnection)
    with connections.one() as first, connections.one() as second:
        assert first is not second

    with connections.one() as later:
        assert later in (first, second)
    assert not later.closed


def test_an_error_closes_the_idle_ones_too() -> None:
    """After a server restart every connection is dead, but only one call fails."""
    connections = Connections(ClosableConnection)
    with connections.one() as idle, connections.one() as broken:
        pass

    with pytest.raises(ConnectionError), connections.one():
        raise ConnectionError

    assert idle.closed
    assert broken.closed


def test_one_that_was_idle_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may have closed it, and the call would fail."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    connections = Connections(ClosableConnection)
    with connections.one() as old:
        pass

    with connections.one() as new:
        assert new is not old
    assert old.closed


def test_not_more_are_kept_than_are_needed() -> None:
    """After a burst of calls a few connections are kept, and closing closes them."""
    connections = Connections(ClosableConnection)
    lent = [connections.one() for _ in range(module.KEPT + 2)]
    opened = [each.__enter__() for each in lent]
    for each in lent:
        each.__exit__(None, None, None)
    assert 2 == sum(each.closed for each in opened)

    connections.close()

    assert all(each.closed for each in opened)
