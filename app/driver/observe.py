"""Tells what happened: one line a round, and every change of state once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from app.errors import AccountingError, Blocked
from app.model import Outcome, Partition, Receipt

log = structlog.get_logger()


@dataclass(slots=True)
class Totals:
    """What all receipts so far add up to."""

    records: int = 0
    out: int = 0
    dead: Counter[str] = field(default_factory=Counter)

    def add(self, receipts: Iterable[Receipt]) -> None:
        """
        Add receipts.

        Raises:
            AccountingError: if one does not balance; the service must stop.
        """
        for receipt in receipts:
            if not receipt.balances:
                where, dead = f"{receipt.partition}@{receipt.start}", sum(receipt.dead.values())
                msg = (
                    f"{where}: {receipt.records} records came in, {receipt.out} went out, {dead} to the dead letters:"
                    " this is a bug; please report it with this line"
                )
                raise AccountingError(msg)
            self.records += receipt.records
            self.out += receipt.out
            self.dead.update(receipt.dead)


class Observer:
    """Keeps the totals and the log; says what changed, not what stayed."""

    def __init__(self) -> None:
        self.totals = Totals()
        self._blocked: dict[Partition, str] = {}
        self._blind = False

    def round_ended(self, receipts: Iterable[Receipt], seconds: float, lag: int) -> None:
        """Report a round."""
        receipts = list(receipts)
        this = Totals()
        this.add(receipts)
        self.totals.add(receipts)
        for receipt in receipts:
            self._tell(receipt)
        log.info(
            "round",
            records=this.records,
            out=this.out,
            dead=this.dead.total(),
            lag_before=lag,
            seconds=round(seconds, 1),
            per_second=round(this.records / seconds) if seconds else 0,
        )

    def round_goes_on(self, records: int, dead: int, lag: int, seconds: float) -> None:
        """Report progress inside a round, as its tasks have noted it beside the group's offsets."""
        if self._blind:
            log.info("Kafka answers the driver again")
            self._blind = False
        log.info(
            "progress",
            records=records,
            dead=dead,
            lag=lag,
            seconds=round(seconds, 1),
            per_second=round(records / seconds),
        )

    def cannot_look(self, reason: str) -> None:
        """Say that progress cannot be told now."""
        if not self._blind:
            log.warning("Kafka does not answer the driver; the tasks go on", reason=reason)
            self._blind = True

    def _tell(self, receipt: Receipt) -> None:
        where = {"topic": receipt.partition.topic, "partition": receipt.partition.number, "offset": receipt.end}
        if receipt.outcome is Outcome.FAILED:
            log.warning("partition failed; the next round tries again", error=receipt.error, **where)
        elif receipt.error:
            log.info("partition recovered", error=receipt.error, reopened=receipt.reopened, **where)

    def blocked(self, now: Mapping[Partition, Blocked]) -> None:
        """Say which partitions wait for a person, when that changes."""
        for partition, error in now.items():
            if self._blocked.get(partition) != str(error):
                log.error("partition blocked; the others go on", error=str(error), **_where(partition))
        for partition in self._blocked.keys() - now.keys():
            log.info("partition no longer blocked", **_where(partition))
        self._blocked = {partition: str(error) for partition, error in now.items()}

    def skipped(self, partition: Partition, start: int, end: int) -> None:
        """Say which offsets an out-of-range policy has skipped."""
        log.warning(
            "offsets skipped, as out.of.range says", start=start, end=end, lost=end - start, **_where(partition)
        )


def _where(partition: Partition) -> dict[str, object]:
    return {"topic": partition.topic, "partition": partition.number}
