"""The counts of a lane: committed, open, and uncertain."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.offsets.metadata import NOTHING, Counts


@dataclass(frozen=True, slots=True)
class Progress:
    """
    The counts of one lane in one task.

    Frozen, so that a lane's successor, which does not wait for the old thread, sees a commit completely or not at all.

    Args:
        done: what is committed.
        open: what the next commit will add.
        uncertain: the offset of a commit whose outcome is unknown.
    """

    done: Counts = NOTHING
    open: Counts = NOTHING
    uncertain: int | None = None

    def taken(self, counts: Counts) -> Progress:
        return replace(self, open=self.open + counts)

    def committing(self, offset: int) -> Progress:
        """Return the counts while a commit runs, which counts as one itself."""
        return replace(self, open=self.open + Counts(committed=1), uncertain=offset)

    def committed(self) -> Progress:
        return Progress(self.done + self.open)

    def resolved(self, committed: int) -> Progress:
        """
        Return the counts that the committed offset implies: an uncertain commit counts if it happened.

        Otherwise what was open is dropped, except the count of aborted transactions.
        """
        if self.uncertain is not None and committed >= self.uncertain:
            return self.committed()
        lost = self.open.records > 0 or self.uncertain is not None
        return Progress(self.done, Counts(aborted=self.open.aborted + lost))
