"""
Finds out when a running service has followed a pause, or the end of one.

Its status page says so if it can be reached. Otherwise the committed offsets show it: while a task works, at least one
of them moves each second, and all stand still while the service is paused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from app.config import Config
from app.driver.clients import Clients
from app.errors import NotFollowed, NotUsable, Unreachable
from app.model import NOBODY
from app.offsets.contract import is_local
from app.operate import served
from app.operate.running import WatchedOffsets
from app.runtime import REAL, Runtime, Timings
from app.status.snapshot import Phase

LOOK_SECONDS = 0.25


class Follower:
    """A service that may follow. Without `commits` no offset shows what it does; without `url` no page is known."""

    def __init__(
        self,
        config: Config,
        timings: Timings,
        commits: WatchedOffsets | None,
        url: str,
        *,
        runtime: Runtime = REAL,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._group = config.group_id
        self._signs = timings.signs_of_life(config.commit_interval)
        self._slack = max(timings.start, 2 * self._signs)
        self._commits = commits
        self.url = url
        self._runtime = runtime
        self._sleep = sleep

    @classmethod
    def visible(cls, config: Config, clients: Clients, url: str) -> Follower | None:
        """Return the service if anything shows what it does: its page, or offsets outside its own process."""
        commits = None
        if not is_local(clients.offsets) or clients.copies is not None:
            with suppress(NotUsable, Unreachable):  # the source's cluster may be away
                commits = WatchedOffsets(config, clients)
        service = cls(config, clients.timings, commits, url or served.address(config))
        return None if service._commits is None and service._page() is None else service

    @property
    def works(self) -> bool:
        """Whether a service works for the group now, or is paused as its page says."""
        if (page := self._page()) is not None:
            return page["paused"] is not None or page["phase"] in (Phase.RUNNING, Phase.LEAVING)
        return self._within(self._signs, lambda _: self._moved()) is not None

    @property
    def has_gone(self) -> bool:
        """Whether the last run was on this machine and nothing answers there; of others, nothing is known."""
        last = NOBODY if self._commits is None else self._commits.owner
        return bool(self.url) and last.host == self._runtime.host and not self._answers()

    def paused(self, seconds: float) -> float:
        """Wait until the service is paused, and return after how many seconds. Raises NotFollowed if it is late."""
        still = 0.0

        def stands_still(now: float) -> bool:
            nonlocal still
            if (page := self._page()) is not None:
                still = now
                return page["paused"] is not None
            if self._moved():
                still = now
            return now - still >= self._signs

        self._wait(seconds, stands_still, "the service still works")
        return still

    def resumed(self, seconds: float) -> float:
        """Wait until the service works, and return after how many seconds. Raises NotFollowed if it is late."""

        def moves(_: float) -> bool:
            if (page := self._page()) is not None:
                return page["paused"] is None
            return self._moved()

        return self._wait(seconds, moves, "no service works for the group")

    def _wait(self, seconds: float, has_followed: Callable[[float], bool], otherwise: str) -> float:
        """Wait until the service has followed what is noted. Raises NotFollowed also if that cannot be seen."""
        try:
            took = self._within(seconds + self._slack, has_followed)
        except (NotUsable, Unreachable, KeyboardInterrupt) as error:
            why = str(error) or "the wait was interrupted"
            raise NotFollowed(f"it is noted, but whether the service follows is unknown: {why}") from None
        if took is None:
            cure = "look at the service's log and at winnow doctor; with --no-wait, the command does not wait"
            raise NotFollowed(f"it is noted, but after {seconds + self._slack:g} s {otherwise}", cure)
        return took

    def _within(self, seconds: float, has_happened: Callable[[float], bool]) -> float | None:
        """Look until something has happened; return after how many seconds, and None if it has not within `seconds`."""
        began = self._runtime.monotonic()
        while (now := self._runtime.monotonic() - began) < seconds:
            if has_happened(now):
                return now
            self._sleep(LOOK_SECONDS)
        return None

    def _moved(self) -> bool:
        return self._commits is not None and self._commits.moved() is not None

    def _page(self) -> dict[str, Any] | None:
        """
        Return what the page of a service that works or is paused says; None if none can be reached.

        One that starts or stands by does not know what another one does.
        """
        try:
            page = served.status(self.url, self._group) if self.url else None
        except (NotUsable, Unreachable):
            return None
        starts = page is not None and page["phase"] == Phase.STARTING and page["paused"] is None
        return None if starts else page

    def _answers(self) -> bool:
        """Whether anything answers, such as a service of another group: this one may listen elsewhere then."""
        try:
            served.status(self.url, self._group)
        except Unreachable:
            return False
        except NotUsable:
            pass
        return True
