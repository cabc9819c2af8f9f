"""On a real Spark, records that kill or hang the Python worker become dead letters, and the rest flows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.embedded.broker import Cluster
from app.model import Guarantee
from app.runtime import Timings
from tests.conftest import Topics
from tests.independent import Written, by_partition, cleansed, committed, line, produce, read
from tests.integration.parsers import DEADLY, installed
from tests.integration.service import Winnow, settings
from tests.support.waiting import until

RECORDS = 3_000
PLACES = {b"exit": 700, b"crash": 1_900, b"hang": 1_900}
DETAILS = {
    b"exit": "the parser process exited with code 3",
    b"crash": "the parser process was killed by SIGSEGV",
    b"hang": "the parser did not return within 5 s",
}
NOTE = "parser_isolated"


def deadly_lines(partition: int, *deadly: bytes) -> list[Written]:
    """Make valid lines, with a deadly one in place of some."""
    lines = {n: line(n, partition) for n in range(RECORDS)} | {PLACES[each]: each for each in deadly}
    return [Written(value, b"%d" % n, partition) for n, value in sorted(lines.items())]


@pytest.mark.parametrize(
    ("deadly", "guarantee"),
    [
        ([b"exit", b"crash"], Guarantee.EXACTLY_ONCE),
        ([b"exit", b"crash"], Guarantee.AT_LEAST_ONCE),
        ([b"hang"], Guarantee.EXACTLY_ONCE),
        ([b"hang"], Guarantee.AT_LEAST_ONCE),
    ],
    ids=["killed, exactly once", "killed, at least once", "hung, exactly once", "hung, at least once"],
)
def test_a_poison_record(
    broker: Cluster, topics: Topics, tmp_path: Path, deadly: list[bytes], guarantee: Guarantee
) -> None:
    """Each becomes a dead letter `parser_error` that says what it did. The others are cleansed, once and in order."""
    source, sink, dead = topics("raw", 4), topics("clean", 4), topics("dead")
    config = settings(
        broker.bootstrap,
        group=sink,
        sources=[source],
        sink=sink,
        dead=dead,
        parser={"name": "deadly"},
        delivery_guarantee=guarantee.value,
        round_interval="10s",
    )
    for partition in range(4):
        produce(broker.bootstrap, source, deadly_lines(partition, *(deadly if partition == 2 else [])))

    environment = installed(tmp_path, "deadly", "Deadly", DEADLY)
    with Winnow(config, tmp_path, environment=environment, timings=Timings(start=5, commit_overdue=5)) as service:
        began = time.monotonic()
        ends = {(source, partition): RECORDS for partition in range(4)}
        until(lambda: committed(broker.bootstrap, sink, source) == ends, "all partitions")
        print(f"{deadly}: all was done {time.monotonic() - began:.0f} s after the start")
        produce(broker.bootstrap, source, [Written(line(RECORDS, 2), None, 2)])
        until(lambda: cleansed(RECORDS, 2) in {each.value for each in read(broker.bootstrap, sink)}, "the next line")
        notes = service.logged(NOTE)
        code, left = service.stop(), service.leftovers()

    letters = read(broker.bootstrap, dead)
    reported = [each.value for each in letters]
    if guarantee is Guarantee.AT_LEAST_ONCE:  # the round may end between a dead letter and its offset
        reported = list(dict.fromkeys(reported))
    assert [0, deadly] == [code, reported]
    for each in letters:
        assert "parser_error" == each.error_headers["exception.class.name"]
        assert DETAILS[each.value or b""] == each.error_headers["exception.message"]
        assert [source, "2", str(PLACES[each.value or b""])] == [
            each.error_headers[name] for name in ("topic", "partition", "offset")
        ]
    assert notes
    found = by_partition(read(broker.bootstrap, sink))
    poisoned = {PLACES[each] for each in deadly}
    for partition in range(4):
        good = [cleansed(n, partition) for n in range(RECORDS) if partition != 2 or n not in poisoned]
        got = [each for each in found[partition] if each != cleansed(RECORDS, 2)]
        if guarantee is Guarantee.EXACTLY_ONCE:
            assert good == got
        else:
            assert good == list(dict.fromkeys(got))
    assert [] == left
    if guarantee is Guarantee.EXACTLY_ONCE:  # otherwise lines may be doubled
        (file := tmp_path / "audit.yaml").write_text(json.dumps(config))
        into, rejects = topics("into", 4), topics("rejects")
        replay = ["replay", "--from", "0", "--to", "2100-01-01T00:00:00Z", "--into", into, "--dead-letters", rejects]
        for arguments in (["audit", "--from", "0"], replay):  # their timestamps are years old
            command = [sys.executable, "-m", "app.cli", *arguments, "-c", str(file)]
            done = subprocess.run(command, env=os.environ | environment, check=False)
            assert 0 == done.returncode, f"such a record must not end {arguments[0]} either"
        assert deadly == [each.value for each in read(broker.bootstrap, rejects)]
        assert {each.value for each in read(broker.bootstrap, sink)} == {
            each.value for each in read(broker.bootstrap, into)
        }
