"""The group's open transactions, for `winnow transactions`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from app.config import Config
from app.driver.clients import Clients
from app.facts import OpenTransaction
from app.operate.running import StoppedService

# Brokers abort transactions at their timeout, so an open one began less than two timeouts ago.
TIMEOUTS = 2


class TransactionLog(Protocol):
    """Finds open transactions; see `app.kafka.transaction_log`."""

    def open_transactions(self, since: int) -> list[OpenTransaction]:
        """Return the open transactions that began after a time in milliseconds since the epoch, in order."""


def open_transactions(config: Config, log: TransactionLog) -> list[OpenTransaction]:
    return log.open_transactions(round((time.time() - TIMEOUTS * config.transaction_timeout) * 1000))


def abort(found: Sequence[OpenTransaction], config: Config, clients: Clients) -> None:
    """
    Abort the open transactions of a dead service.

    Raises:
        ServiceRuns: the service is running; nothing is changed.
    """
    service = StoppedService(config, clients)
    service.refuse_running()
    service.fence([each.source for each in found])
