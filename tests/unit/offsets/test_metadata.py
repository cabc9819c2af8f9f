"""The metadata of committed offsets: written by tasks, read by drivers of older and newer versions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.executor.parse import PARSER_ERROR, REFUSED, TOO_LARGE
from app.model import NOBODY, CommittedOffset, LastRead, OffsetRange, Owner, Partition, topic_id_of
from app.offsets.metadata import CODES, MAX_BYTES, OTHER, UNKNOWN, Counts, OffsetMetadata
from parsers.flume.envelope import REASON as ENVELOPE
from parsers.idc_access_log import IdcAccessLog

NUMBERS = st.integers(0, 2**63 - 1)
REASONS = st.sampled_from(sorted(CODES)) | st.text(min_size=1, max_size=20)
BY_NAME = st.dictionaries(REASONS, st.integers(1, 2**63 - 1), max_size=10)
COUNTS = st.builds(Counts, NUMBERS, NUMBERS, BY_NAME, NUMBERS, NUMBERS, filtered=BY_NAME)
KAFKA_DEFAULT = 4096
"""The broker's default for `offset.metadata.max.bytes`."""


SINKS = st.from_regex(r"[\w.-]{1,249}", fullmatch=True)
OWNER = st.builds(Owner, NUMBERS, st.text(), SINKS, NUMBERS) | st.just(NOBODY)
BLOCKED = st.text(max_size=100)
LAST_READ = st.none() | st.builds(LastRead, NUMBERS, NUMBERS)
TOPIC_ID = st.from_regex(r"[\w-]{0,22}", fullmatch=True).map(topic_id_of)


@given(
    st.builds(OffsetMetadata, TOPIC_ID, NUMBERS, COUNTS, LAST_READ, OWNER),
    BLOCKED,
    st.booleans(),
    st.none() | NUMBERS,
)
def test_metadata_is_read_as_it_was_written(
    metadata: OffsetMetadata, blocked: str, tripped: bool, cut: int | None
) -> None:
    """The driver reads what a task commits, whatever the names of a parser's reasons."""
    metadata = replace(metadata, blocked=blocked, tripped=tripped, cut=cut)

    assert metadata == OffsetMetadata.parse(str(metadata))


@given(st.text())
@example("in=" + "9" * 5_000)
@example("dead=" + "9" * 5_000)
def test_any_text_can_be_read(text: str) -> None:
    """No metadata raises an error; only metadata that begins with our name counts."""
    assert OffsetMetadata() == OffsetMetadata.parse(f"x{text}")
    OffsetMetadata.parse(f"winnow {text}")
    OffsetMetadata.parse(f"winnow/2 {text}")


@pytest.mark.parametrize("text", ["", "kafka-consumer-groups", "topic=another", "winnow/3 topic=x in=3"])
def test_metadata_of_others_is_ignored(text: str) -> None:
    """Metadata of an operator's tool or of a later version has no counts of ours."""
    assert not OffsetMetadata.parse(text).is_ours


def test_the_first_version_is_still_read() -> None:
    """Counts continue after an upgrade; the first version had no reasons of dead letters."""
    found = OffsetMetadata.parse("winnow topic=abc since=5 in=10 dead=3")

    assert OffsetMetadata("abc", 5, Counts(10, 7, {UNKNOWN: 3})) == found


def test_a_topic_that_had_no_id_is_not_another_one() -> None:
    """0.2.0 wrote the zeros that librdkafka gives for none. After an upgrade of the brokers, the topic has an id."""
    found = OffsetMetadata.parse("winnow/2 topic=AAAAAAAAAAAAAAAAAAAAAA since=5 in=10 out=10")

    assert OffsetMetadata("", 5, Counts(10, 10)) == found
    assert OffsetMetadata("id", 5, Counts(12, 12)).continues(found)


@pytest.mark.parametrize(("before", "now"), [("", "id"), ("id", "")])
def test_counts_continue_when_a_topic_gets_its_id(before: str, now: str) -> None:
    """Also when a broker that was not upgraded yet gives none again."""
    committed = CommittedOffset(15, str(OffsetMetadata(before, 5, Counts(10, 10))))
    planned = OffsetRange(Partition("raw", 0), 15, 15, topic_id=now)

    assert OffsetMetadata(now, 5, Counts(10, 10)) == OffsetMetadata.continuing(committed, 15, planned, NOBODY)
    assert str(OffsetMetadata(now, 7)) == OffsetMetadata.restarting(committed, 7, now)


def test_every_reason_of_the_product_has_a_code() -> None:
    """Each built-in reason has a code, which keeps the metadata short."""
    assert {*IdcAccessLog().reasons, TOO_LARGE, ENVELOPE, PARSER_ERROR, REFUSED} == set(CODES)
    assert len(set(CODES.values())) == len(CODES)


def test_all_reasons_fit_beside_an_offset() -> None:
    """All built-in reasons with counts of a trillion take less than a quarter of the broker's default limit."""
    large = 10**12

    text = str(OffsetMetadata("A" * 22, large, Counts(large, large, dict.fromkeys(CODES, large), large, large)))

    assert len(text) < KAFKA_DEFAULT // 4


@given(st.dictionaries(st.text(min_size=1, max_size=80), st.integers(1, 10**9), max_size=300))
def test_any_number_of_reasons_fits(dead: dict[str, int]) -> None:
    """With hundreds of reasons the rarest lose their names, but no count and no commit is lost."""
    owner = Owner(10**13, "h" * 253, "s" * 249)
    counts, read = Counts(10**12, 5, dead), LastRead(10**12, 10**6)
    text = str(OffsetMetadata("A" * 22, 7, counts, read, owner, blocked="a broker's words € " * 100))

    found = OffsetMetadata.parse(text).counts.dead
    assert len(text) <= MAX_BYTES < KAFKA_DEFAULT
    assert sum(dead.values()) == sum(found.values())
    assert set(found) <= {*dead, OTHER}


def test_any_number_of_reasons_is_written() -> None:
    """A parser that quotes the line in its reason makes one for each record. Each commit writes them."""
    dead = {f"unknown host {n}": 1 for n in range(20_000)} | {"empty": 2}

    found = OffsetMetadata.parse(str(OffsetMetadata("t", counts=Counts(20_002, dead=dead)))).counts.dead

    assert 2 == found["empty"]
    assert 20_002 == sum(found.values())


def test_all_filters_that_count_keep_their_names() -> None:
    """However many were removed before, and however much those had counted: only removed ones become `other`."""
    metadata = OffsetMetadata("id")
    years = [  # the most rules with the longest names, and other ones each year
        {f"{'n' * 35}-{year}-{number:02d}": 10 ** (9 - year) for number in range(16)} for year in range(5)
    ]
    for dropped in (each for each in years for _ in range(2)):  # twice: a task also finds what it has written itself
        counts = metadata.counts + Counts(filtered=dropped)
        metadata = OffsetMetadata.parse(str(replace(metadata, counts=counts)))

    found = metadata.counts.filtered
    assert {name: 2 * count for name, count in years[-1].items()} == {name: found[name] for name in years[-1]}
    assert 2 * sum(sum(each.values()) for each in years) == sum(found.values())


@given(COUNTS, COUNTS)
def test_added_counts_can_be_subtracted(before: Counts, more: Counts) -> None:
    """The difference of two counts is the count that was added."""
    new = (before + more).since(before)

    assert more == new


def test_a_count_that_went_back_counts_as_zero() -> None:
    """A reset of the offset does not decrease a counter."""
    assert Counts() == Counts(1, 1, {"empty": 1}, 1, 1).since(Counts(5, 5, {"empty": 5}, 5, 5))


def test_what_loses_its_name_is_not_counted_again() -> None:
    """A filter without room becomes `other`: the driver does not take its old count for a new one."""
    before = Counts(filtered={"removed": 1_000, OTHER: 5})

    assert Counts(filtered={"new": 2, OTHER: 3}) == Counts(filtered={"new": 2, OTHER: 1_008}).since(before)
    assert Counts(filtered={"new": 2}) == Counts(filtered={"new": 2, OTHER: 1_005}).since(before)


def test_what_regains_its_name_is_not_counted_again() -> None:
    """A filter that counts once more after others took its room: its old count was in `other`."""
    before = Counts(filtered={"busy": 3, OTHER: 705})

    assert Counts(filtered={"seldom": 1}) == Counts(filtered={"seldom": 701, "busy": 3, OTHER: 5}).since(before)
    assert Counts(filtered={"seldom": 1}) == Counts(filtered={"seldom": 701, OTHER: 8}).since(before)
    assert Counts(filtered={"seldom": 6}) == Counts(filtered={"seldom": 711, "busy": 3}).since(before)


LONG_NAMES = st.sampled_from([f"{'r' * 190}-{number:02d}" for number in range(30)])
BY_LONG_NAME = st.dictionaries(LONG_NAMES, st.integers(1, 1_000), max_size=30)


@given(st.lists(st.builds(Counts, dead=BY_LONG_NAME, filtered=BY_LONG_NAME), max_size=5))
def test_all_that_a_task_counts_is_counted_once(commits: list[Counts]) -> None:
    """Its memory has all names, but what it commits only those with room, and fewer if it also says what blocks it."""
    memory = seen = counted = Counts()
    for counts in commits:
        memory += counts
        for blocked in ("why " * 400, ""):
            found = OffsetMetadata.parse(str(OffsetMetadata("id", counts=memory, blocked=blocked))).counts
            counted += found.since(seen)
            seen = found

    assert (memory.filtered_total, memory.dead_total) == (counted.filtered_total, counted.dead_total)
