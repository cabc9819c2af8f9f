"""Dead letters that are made for a whole chunk at once equal those that are made one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.executor.dead_letters import make_dead_letter, make_dead_letters
from app.model import NO_EPOCH, Partition
from app.records import Chunk, DeadLetter, DeadLetters, Headers
from parsers.contract import Parsed

PARTITIONS = [Partition("raw", 0), Partition("raw", 12), Partition("other", 3)]
ROOMY = 1 << 20

texts = st.binary(max_size=40)
headers = st.lists(st.tuples(st.text("ab€", max_size=3), st.none() | texts), max_size=2)
records = st.tuples(st.none() | texts, st.none() | texts, st.integers(0, 2), st.booleans())


def chunk_of(
    rows: Sequence[tuple[bytes | None, bytes | None, int, bool]], of_row: Sequence[Headers] = ()
) -> tuple[Chunk, Parsed]:
    """Make a chunk of (key, value, partition, rejected), and a parser's result for it."""
    bad = [number for number, row in enumerate(rows) if row[3]]
    good = [number for number, row in enumerate(rows) if not row[3]]
    chunk = Chunk(
        partitions=PARTITIONS,
        sources=np.array([row[2] for row in rows], np.int32),
        offsets=np.arange(len(rows), dtype=np.int64) * 3 + (1 << 40),
        timestamps=np.arange(len(rows), dtype=np.int64) - 1,
        keys=pa.array([row[0] for row in rows], pa.binary()),
        values=pa.array([row[1] for row in rows], pa.binary()),
        headers=lambda row: of_row[row] if of_row else [],
        epoch_of=lambda _: NO_EPOCH,
    )
    parsed = Parsed(
        values=pa.array([b"fine"] * len(good), pa.binary()),
        rows=np.array(good, np.int32),
        reject_rows=np.array(bad, np.int32),
        reasons=pa.array([f"reason_{number}" for number in bad], pa.string()),
        details=pa.array([f"detail € {number}" for number in bad], pa.string()),
    )
    return chunk, parsed


def one_by_one(chunk: Chunk, parsed: Parsed, max_bytes: int) -> list[DeadLetter]:
    return [
        make_dead_letter(chunk, chunk.partitions[chunk.sources[reject.row]], reject, max_bytes)
        for reject in parsed.rejects()
    ]


@given(st.lists(records, max_size=8), st.sampled_from([ROOMY, 420, 200]))
def test_all_at_once_is_the_same_as_one_by_one(
    rows: list[tuple[bytes | None, bytes | None, int, bool]], max_bytes: int
) -> None:
    """Dead letters of a whole chunk equal those that are made one by one."""
    chunk, parsed = chunk_of(rows)

    made = make_dead_letters(chunk, parsed, max_bytes)

    assert list(made) == one_by_one(chunk, parsed, max_bytes)


def test_rejects_without_headers_become_one_array() -> None:
    """If no record has headers, the dead letters of a chunk are one Arrow array."""
    chunk, parsed = chunk_of([(None, b"bad", 0, True), (b"k", b"good", 1, False), (b"", None, 2, True)])

    made = make_dead_letters(chunk, parsed, ROOMY)

    assert isinstance(made, DeadLetters)
    assert [(one.key, one.value, one.timestamp) for one in made] == [(None, b"bad", -1), (b"", None, 1)]


def test_headers_of_the_record_come_first() -> None:
    """A dead letter has the record's own headers first, then Winnow's."""
    own: list[Headers] = [[("h", b"1")], [], [("h", None)]]
    chunk, parsed = chunk_of([(None, b"bad", 0, True), (None, b"good", 0, False), (None, b"bad", 1, True)], own)

    made = make_dead_letters(chunk, parsed, ROOMY)

    assert [one.headers[0] for one in made] == [("h", b"1"), ("h", None)]


@given(st.lists(st.builds(DeadLetter, st.none() | texts, st.none() | texts, headers, st.integers(-1, 5)), max_size=5))
def test_dead_letters_as_an_array_are_the_same_dead_letters(some: list[DeadLetter]) -> None:
    """Dead letters in an Arrow array keep every field, also in a slice."""
    flat = DeadLetters.of(some)

    assert list(flat) == some
    assert list(flat[1:3]) == some[1:3]
    assert [len(one.key or b"") + len(one.value or b"") for one in some] <= flat.sizes().tolist()
    assert DeadLetters.of(flat) is flat


def test_a_missing_dead_letter_is_an_index_error() -> None:
    """Negative indices count from the end, and an index beyond it raises an IndexError."""
    flat = DeadLetters.of([DeadLetter(b"k", b"v", [], 1)])

    assert flat[-1] == flat[0] == DeadLetter(b"k", b"v", [], 1)
    with pytest.raises(IndexError):
        flat[1]
