"""`winnow audit` on a real Kafka, of what the service has written, and of what others have broken since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli import main
from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, line, produce, read
from tests.integration.in_process import Running, run
from tests.integration.service import settings
from tests.support.waiting import until

BEGAN = 1_760_000_000_000


def audit(file: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(main, ["audit", "-c", str(file), "--json", *(arguments or ("--from", str(BEGAN)))])
    return done.exit_code, json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}


def records(begin: int, end: int) -> list[Written]:
    return [Written(line(n) if n % 5 else b"rubbish %d" % n, b"k", n % 3, BEGAN + n) for n in range(begin, end)]


@pytest.mark.parametrize("more", [{}, {"key": "houseid", "partitioner": "key"}], ids=["by source", "by key"])
def test_each_anomaly_is_found_where_it_is(
    broker: Cluster, topics: Topics, tmp_path: Path, more: dict[str, str]
) -> None:
    """What the service has written is right; a copy, a stranger and a missing line are each one finding."""
    source, sink, dead, broken = topics("raw", 3), topics("clean", 2), topics("dead", 2), topics("broken", 2)
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    config["sink"] |= more
    file = tmp_path / "winnow.yaml"
    file.write_text(json.dumps(config))
    produce(broker.bootstrap, source, records(0, 300))
    assert 0 == run(config)[0]

    good, sampled = audit(file), audit(file, "--from", str(BEGAN), "--sample", "20")
    part = audit(file, "--from", str(BEGAN + 100), "--to", str(BEGAN + 160))
    lines = [Written(each.value, each.key, each.partition, each.timestamp) for each in read(broker.bootstrap, sink)]
    lost, changed, doubled = lines[40], lines[50], lines[60]
    copy = [each._replace(value=b"x") if each is changed else each for each in lines if each is not lost]
    produce(broker.bootstrap, broken, [*copy, doubled])
    code, found = audit(file, "--from", str(BEGAN), "--set", f"sink.topic={broken}")

    assert (0, 300, []) == (good[0], good[1]["records"], good[1]["findings"])
    assert (0, []) == (sampled[0], sampled[1]["findings"])
    assert 0 < sampled[1]["records"] < 300
    assert (0, 60) == (part[0], part[1]["records"])
    assert (1, [1, 1, 1, 0]) == (code, [found[kind] for kind in ("lost", "doubled", "changed", "out_of_order")])
    where = {each["kind"]: each["partition"] + 3 * each["offset"] for each in found["findings"]}
    assert {"lost": lost, "changed": changed, "doubled": doubled} == {
        kind: next(each for each in lines if each.timestamp == BEGAN + number) for kind, number in where.items()
    }


def test_beside_a_running_service(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """It judges what is committed, while more records come and go."""
    source, sink, dead = topics("raw", 3), topics("clean", 2), topics("dead", 2)
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    file = tmp_path / "winnow.yaml"
    file.write_text(json.dumps(config))
    with Running(config):
        audited = 0
        for begin in range(0, 1_500, 300):
            produce(broker.bootstrap, source, records(begin, begin + 300))
            until(lambda: read(broker.bootstrap, sink), "lines")
            code, found = audit(file)
            assert (0, []) == (code, found["findings"])
            audited = max(audited, found["records"])

    assert 300 <= audited <= 1_500
