"""What moves between offset stores, and what is reported; `tests/integration/stores` moves offsets between real ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.driver.starting_offsets import is_witness
from app.errors import Blocked, CorruptOffset, NotUsable, TopicRecreated
from app.model import NOBODY, CommittedOffset, LastRead, OffsetRange, Owner, Partition, Topic
from app.offsets.contract import PastOffsets
from app.offsets.metadata import Counts, OffsetMetadata
from app.offsets.migrate import Move, carry_out, dry_run, moves, moves_back, report_left
from tests.fakes import FakeKafka, FakeOffsets

A, B, C = (Partition("raw", number) for number in range(3))
A0 = Partition("a", 0)
TOPICS = {"a": Topic("a", "id-1", 2), "b": Topic("b", "", 1)}


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


def test_what_is_not_an_offset_is_corrected_where_it_is() -> None:
    """`offsets reset` would set an offset in the configured store, which may be the one to move to."""
    kafka = FakeKafka({})
    kafka.committed = {A: CommittedOffset.not_readable("field 0 of the hash holds 'x'")}

    with pytest.raises(Blocked, match="holds 'x'") as caught:
        list(moves(FakeOffsets(kafka), FakeOffsets(FakeKafka({})), [A], between_clusters=False))

    assert "reset" not in caught.value.cure


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


class Past:
    """A history in a list."""

    def __init__(self, *entries: tuple[str, PastOffsets]) -> None:
        self.entries = entries

    def history(self, topic: str, most: int, until: int | None = None) -> Sequence[PastOffsets]:
        known = [each for name, each in self.entries if name == topic and (until is None or each.time <= until)]
        return sorted(known, key=lambda each: -each.time)[:most]


class TestRestore:
    """What a restore from the history of a group's offsets moves, and how times are written."""

    def test_an_entry_is_a_line(self) -> None:
        """Partitions are in numeric order."""
        assert str(PastOffsets(0, {10: 3, 2: 7})) == "1970-01-01T00:00:00.000Z  2=7 10=3"

    def test_each_topic_goes_back_to_its_newest_entry_that_is_not_later(self) -> None:
        """
        Entries of two topics have different times.

        A partition without an entry, or that no longer exists, does not move. The topic's id goes into the metadata,
        so that a partition added later counts as new and a recreated topic is noticed.
        """
        store = FakeOffsets(FakeKafka({}))
        store.save(A0, 100, "now")
        of_a = [PastOffsets(10, {0: 1}), PastOffsets(20, {0: 2})]
        past = Past(*(("a", each) for each in of_a), ("b", PastOffsets(15, {0: 5, 7: 3})))

        found = list(moves_back(past, store, TOPICS, 19))

        assert ["a-0: 100 → 1", "b-0: nothing → 5"] == [str(move) for move in found]
        assert is_witness(found[0].source, "id-1")

    @pytest.mark.parametrize(("then", "now"), [("id-0", ""), ("", "id-0"), ("id-0", "id-1"), ("id-1", "id-0")])
    def test_offsets_of_a_deleted_topic_are_not_restored(self, then: str, now: str) -> None:
        """The entry or the store's metadata shows that the offsets belong to other records."""
        store = FakeOffsets(FakeKafka({}))
        store.save(A0, 100, str(OffsetMetadata(now, 0, Counts(100, 100))))
        past = Past(("a", PastOffsets(10, {0: 1}, {0: then})), ("b", PastOffsets(10, {})))

        with pytest.raises(TopicRecreated, match="a-0@1: the topic was deleted and recreated"):
            list(moves_back(past, store, TOPICS, 19))

    def test_a_history_that_is_too_young(self) -> None:
        """A time before the first entry is an error before anything moves."""
        with pytest.raises(NotUsable, match=r"the history of a does not go back to 1970-01-01T00:00:00\.005Z"):
            list(moves_back(Past(("a", PastOffsets(10, {0: 1}))), FakeOffsets(FakeKafka({})), TOPICS, 5))
