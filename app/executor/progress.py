"""What a lane has counted: what is committed, what is open, and what may be committed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.offsets.metadata import NOTHING, Counts


@dataclass(frozen=True, slots=True)
class Progress:
    """
    The counts of one lane in one task.

    Frozen, so that a lane that takes over from another one, whose thread it does not wait for, sees a commit as a whole
    or not at all.

    Args:
        done: what is committed.
        open: what waits for the next commit.
        uncertain: the offset of a commit whose outcome is unknown.
    """

    done: Counts = NOTHING
    open: Counts = NOTHING
    uncertain: int | None = None

    def taken(self, counts: Counts) -> Progress:
        """Return it with more records open."""
        return replace(self, open=self.open + counts)

    def committing(self, offset: int) -> Progress:
        """Return it while a commit runs, which counts itself."""
        return replace(self, open=self.open + Counts(committed=1), uncertain=offset)

    def committed(self) -> Progress:
        """Return it after a commit."""
        return Progress(self.done + self.open)

    def resolved(self, committed: int) -> Progress:
        """
        Return it as the committed offset shows it: a commit whose outcome was unknown counts if it happened.

        Otherwise what was open is dropped, but for the count of transactions that were aborted.
        """
        if self.uncertain is not None and committed >= self.uncertain:
            return self.committed()
        lost = self.open.records > 0 or self.uncertain is not None
        return Progress(self.done, Counts(aborted=self.open.aborted + lost))
