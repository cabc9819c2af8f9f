"""The computations of the benchmarks, because nobody would notice a wrong figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import timed
from tests.bench.jvm import FLINK, KAFKA_STREAMS, SOURCES
from tests.bench.latency import Received, rounds
from tests.bench.measure import Result, Sample, medians, steady
from tests.bench.picture import Bar, draw
from tests.bench.planner import LOADS, excess, planned
from tests.bench.report import markdown, percentile, spread
from tests.bench.systems import SYSTEMS


def test_percentile_is_nearest_rank() -> None:
    """A percentile is always one of the measured numbers."""
    hundred = [float(number) for number in range(100, 0, -1)]

    assert [1.0, 50.0, 99.0, 100.0] == [percentile(hundred, percent) for percent in (0, 50, 99, 99.9)]
    assert 7.0 == percentile([7.0], 50)


def test_spread_shows_median_lowest_and_highest() -> None:
    """A single number has no brackets, and a figure that a system does not have is a dash."""
    assert ["2 (1 to 9)", "3", "-"] == [spread(each, ".0f") for each in ([9, 1, 2], [3], [0, 0])]


def test_a_table_is_markdown() -> None:
    """The table has a header, a separator, and the rows."""
    assert "| a | b |\n| --- | --- |\n| 1 | 2 |" == markdown(["a", "b"], [["1", "2"]])


def test_the_steady_part_leaves_start_and_end_out() -> None:
    """What happens before a tenth and after nine tenths of the output changes no figure."""
    slow_start = [Sample(0, 0, 0, 0), Sample(100, 100_000, 50, 10)]
    steady_part = [Sample(101 + second, 100_000 * (second + 2), 51 + second, 10.5 + second / 2) for second in range(8)]
    slow_end = [Sample(500, 1_000_000, 300, 99)]

    result = steady([*slow_start, *steady_part, *slow_end], 1_000_000, 300.0, 20)

    assert (100_000, 10.0, 5.0) == pytest.approx(
        (result.records_per_second, result.cpu_per_million, result.broker_cpu_per_million)
    )


def test_every_figure_has_its_own_median() -> None:
    """Two figures may have their medians in different runs."""
    runs = [Result(1, 30, 5, 7, 2), Result(2, 10, 6, 8, 2), Result(3, 20, 4, 9, 2)]

    assert Result(2, 20, 5, 8, 2) == medians(runs)


def test_latency_is_counted_from_when_a_record_was_due() -> None:
    """Each record of a batch has its own due time."""
    received = Received([10.0, 10.5, 13.0], [[9.5], [9.6, 10.0], [12.75]])

    assert pytest.approx([0.5, 0.9, 0.5, 0.25]) == received.latencies()
    assert [2.5, 0.5] == received.gaps()
    assert 1.0 == received.per_second()
    assert [13.0] == received.since(11.0).arrivals


def test_ended_rounds_are_counted_in_the_log(tmp_path: Path) -> None:
    """Other events and Java's output do not count as rounds."""
    log = tmp_path / "log"
    events = ["started", "round", "round", "stopped"]
    log.write_text("\n".join(["WARNING: Using incubator modules", *(json.dumps({"event": each}) for each in events)]))

    assert 2 == rounds(log)


def test_the_times_of_all_workers_are_read(tmp_path: Path) -> None:
    """Each worker writes its own file."""
    (tmp_path / "times-1").write_text("opened 0.5\ncommit 0.002\n")
    (tmp_path / "times-2").write_text("commit 0.004\n")

    opened, commits = timed.read(tmp_path)

    assert [0.5] == opened
    assert [0.002, 0.004] == sorted(commits)


@pytest.mark.parametrize("load", LOADS)
def test_a_large_cluster_is_planned_evenly(load: str) -> None:
    """With 10,000 partitions on 2,000 slots no task exceeds the lower bound by 10 %."""
    assert planned(LOADS[load](10_000), 2_000).excess < 0.1


def test_a_bad_plan_shows() -> None:
    """The excess counts from the mean, or from the heaviest partition if that is more."""
    assert 0.5 == pytest.approx(excess([[10, 20], [10]]))
    assert 0 == pytest.approx(excess([[30], [10]]))


def test_every_java_program_is_there() -> None:
    """Each program is in a file with the name of its class."""
    assert all(
        f"class {program.name} " in (SOURCES / f"{program.name}.java").read_text() for program in (FLINK, KAFKA_STREAMS)
    )


def test_every_system_has_a_name_of_its_own_that_topics_can_have() -> None:
    """Topics and folders get their names from systems."""
    slugs = [system.slug for system in SYSTEMS]

    assert len(set(slugs)) == len(slugs)
    assert all(set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-") for slug in slugs)


def test_the_picture_names_every_system_and_is_the_same_each_time(tmp_path: Path) -> None:
    """The picture is in the repository, so it must change only with its numbers."""
    bars = [Bar("Winnow", 1_050_000, 1.4, ours=True), Bar("Flink", 828_000, 2.01, ours=False)]
    files = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for file in files:
        draw(bars, "title", file)
    one, two = (file.read_bytes() for file in files)

    assert one == two
    assert all(word in one for word in (b"Winnow", b"Flink", b"1,050,000", b"2.01"))
