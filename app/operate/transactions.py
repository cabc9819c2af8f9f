"""The group's open transactions, for `winnow transactions`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from app.config import Config
from app.driver.clients import Clients
from app.facts import OpenTransaction
from app.operate.running import StoppedService

# Brokers abort transactions at their timeout, so an open one began less than two timeouts ago.
TIMEOUTS = 2


def open_transactions(config: Config, since: Callable[[int], list[OpenTransaction]]) -> list[OpenTransaction]:
    """Return the open transactions, in order; `since` finds those that began after a time in milliseconds."""
    return since(round((time.time() - TIMEOUTS * config.transaction_timeout) * 1000))


def abort(found: Sequence[OpenTransaction], config: Config, clients: Clients) -> None:
    """
    Abort the open transactions of a dead service.

    Raises:
        ServiceRuns: the service is running; nothing is changed.
    """
    service = StoppedService(config, clients)
    service.refuse_running()
    service.fence([each.source for each in found])
