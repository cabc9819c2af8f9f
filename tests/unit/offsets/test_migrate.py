"""What moves between offset stores, and what is reported; `tests/integration/stores` moves offsets between real ones."""

from __future__ import annotations

import pytest

from app.errors import CorruptOffset
from app.model import NOBODY, CommittedOffset, LastRead, OffsetRange, Owner, Partition
from app.offsets.metadata import Counts, OffsetMetadata
from app.offsets.migrate import Move, carry_out, dry_run, moves, report_left
from tests.fakes import FakeKafka, FakeOffsets

A, B, C = (Partition("raw", number) for number in range(3))


def test_a_partition_that_does_not_move_is_told() -> None:
    """If the store lost an offset, the service would start that partition over."""
    said: list[str] = []

    report_left([Move(B, CommittedOffset(4), None)], [C, B, A], "redis", said.append)

    assert ["left     raw-0: no offset in redis", "left     raw-2: no offset in redis"] == said


FOUND = OffsetMetadata(
    "id", 20, Counts(80, 80), LastRead(100, 3), Owner(5, "host", "clean"), backlog=500, blocked="cut at 90", cut=90
)


@pytest.mark.parametrize("between_clusters", [False, True])
def test_a_sink_on_another_cluster_holds_no_lines_of_before(between_clusters: bool) -> None:
    """Counts start at the offset then, which names no run; the source's log and topic are the same."""
    source, target = FakeOffsets(FakeKafka({})), FakeOffsets(FakeKafka({}))
    source.reset(A, 100, str(FOUND))
    source.reset(B, 7, "of another tool")

    ours, theirs = moves(source, target, [A, B], between_clusters=between_clusters)

    assert (100, 7, "of another tool") == (ours.source.offset, theirs.source.offset, theirs.source.metadata)
    moved = OffsetMetadata.parse(ours.source.metadata)
    anew = OffsetMetadata("id", 100, read=LastRead(100, 3), blocked="cut at 90", cut=90)
    assert (anew if between_clusters else FOUND) == moved
    assert (100 if between_clusters else 20) == OffsetMetadata.continuing(
        ours.source, 100, OffsetRange(A, 100, 100, None, "id"), NOBODY
    ).since


class CorruptStore(FakeOffsets):
    """A store that holds something other than offsets."""

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        raise CorruptOffset(partition, "'x' is not an offset", offset)


def test_what_is_not_an_offset_does_not_go_back() -> None:
    """Dry or not, each refusal gives its own reason, and --force overrules both."""
    back = Move(A, CommittedOffset(4), CommittedOffset(6))
    replaces = Move(B, CommittedOffset(4), CommittedOffset.not_readable("'x' is not an offset"))
    foretold, said, forced = list[str](), list[str](), list[str]()
    good, bad = FakeOffsets(FakeKafka({})), CorruptStore(FakeKafka({}))
    good.reset(A, 6, "")

    assert 2 == dry_run([back, replaces], force=False, say=foretold.append)
    assert 1 == carry_out([back], good, {}, force=False, say=said.append)
    assert 1 == carry_out([replaces], bad, {}, force=False, say=said.append)
    assert 0 == dry_run([back, replaces], force=True, say=forced.append)

    assert [
        "refused  raw-0: 6 → 4: it would go back; use --force to allow that",
        "refused  raw-1: 'x' is not an offset → 4: it would replace what is not an offset; use --force to allow that",
    ] == foretold
    assert foretold == said
    assert ["to move  raw-0: 6 → 4", "to move  raw-1: 'x' is not an offset → 4"] == forced
