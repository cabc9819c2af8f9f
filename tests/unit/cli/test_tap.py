"""Where `winnow tap` starts, and what it shows."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.model import CommittedOffset, Partition
from app.records import Record
from tests.fakes.driver import DriverKafka
from tests.independent import line
from tests.support.configuration import file_of
from tests.unit.config.good import GOOD

A, B = Partition("raw", 0), Partition("raw", 1)


class Source:
    """Two partitions of 10 records; the group has read 7 of the first."""

    def __init__(self) -> None:
        self.kafka = DriverKafka(p0=(2, 10), p1=(2, 10))
        self.kafka.committed = {A: CommittedOffset(7)}
        self.starts: Mapping[Partition, int] = {}

    def batches(self, starts: Mapping[Partition, int]) -> Generator[list[Record]]:
        self.starts = starts
        yield [Record(A, at, 1_000, None, line(at), []) for at in range(1_000)]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    found = Source()
    monkeypatch.setattr("app.start.clients", lambda _: found.kafka.clients)
    monkeypatch.setattr("app.start.records", lambda *_: found)
    return found


def tap(tmp_path: Path, *arguments: str) -> Result:
    file = file_of(GOOD | {"source": {"topics": ["raw"]}}, tmp_path)
    return CliRunner().invoke(main, ["tap", "-c", str(file), "--json", *arguments])


@pytest.mark.parametrize(
    ("arguments", "starts"),
    [
        ([], {A: 10, B: 10}),
        (["--topic", "raw:1"], {B: 10}),
        (["--from", "earliest"], {A: 2, B: 2}),
        (["--from", "latest"], {A: 10, B: 10}),
        (["--from", "2026-11-22T06:00:00Z"], {A: 5, B: 5}),
        (["--last", "1h"], {A: 5, B: 5}),
        (["--since", "10 minutes ago"], {A: 5, B: 5}),
        (["--offset", "4"], {A: 4, B: 4}),
        (["--offset", "99", "--topic", "raw:0"], {A: 10}),
    ],
)
def test_where_it_starts(source: Source, tmp_path: Path, arguments: list[str], starts: Mapping[Partition, int]) -> None:
    """By default at the end, in all partitions."""
    done = tap(tmp_path, *arguments, "--limit", "1")

    assert (0, starts) == (done.exit_code, source.starts), done.stderr
    new = "new " if set(starts.values()) == {10} and "--offset" not in arguments else ""
    assert f"showing {new}records of {len(starts)} partitions; press Ctrl-C to stop\n" == done.stderr


def test_a_partition_that_cannot_start_is_told(source: Source, tmp_path: Path) -> None:
    """The group has no offset there."""
    done = tap(tmp_path, "--from", "committed", "--limit", "1")

    assert {A: 7} == source.starts
    assert "raw-1: the group has no offset in this partition" == done.stderr.splitlines()[0]


def test_nothing_to_show_is_no_reason_to_wait(source: Source, tmp_path: Path) -> None:
    """No partition can start, so no record would ever come."""
    source.kafka.committed = {}

    done = tap(tmp_path, "--from", "committed")

    assert (1, {}) == (done.exit_code, source.starts)


@pytest.mark.usefixtures("source")
def test_a_sample_of_the_records(tmp_path: Path) -> None:
    """Each record is shown with this probability."""
    shown = [json.loads(each)["offset"] for each in tap(tmp_path, "--sample", "20").stdout.splitlines()]

    assert 100 < len(shown) < 300
    assert shown == sorted(set(shown))
    assert 1_000 == len(tap(tmp_path, "--sample", "100").stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "soon"], "'soon' is not a time: write "),
        (["--from", "earliest", "--offset", "1"], "give only one of --since, --last and --offset"),
        (["--from", "earliest", "--last", "1h"], "give only one of --since, --last and --offset"),
        (["--topic", "row"], "configuration: --topic: 'row' is not a source topic"),
        (["--sample", "0"], "--sample"),
        (["--sample", "nan"], "--sample': nan is not a number"),
        (["--sample", "inf"], "--sample"),
        (
            ["--reason", "empty", "--reason", "too_large"],
            "--reason too_large: only the limits of a topic give it; dead letters",
        ),
        (["--reason", "refused"], "--reason refused: only the limits of a topic give it"),
    ],
)
@pytest.mark.usefixtures("source")
def test_wrong_usage(tmp_path: Path, arguments: list[str], message: str) -> None:
    """It ends with 2 and says why."""
    done = tap(tmp_path, *arguments)

    assert 2 == done.exit_code
    assert message in done.stderr
