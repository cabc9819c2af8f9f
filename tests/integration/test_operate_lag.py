"""`winnow lag` on a real Kafka."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from app.cli import main
from app.embedded.broker import Cluster
from app.kafka.ages import KafkaFirstRecords
from tests.conftest import Topics
from tests.independent import Written, commit, ends, line, produce
from tests.integration.service import settings
from tests.support.waiting import PATIENCE


def lag(file: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(main, ["lag", "-c", str(file), "--json", *arguments])
    return done.exit_code, json.loads(done.stdout)


def test_the_lag_of_a_group(broker: Cluster, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets match Kafka's own tool. Seconds are the age of the next record, or 0 if only control records follow."""
    monkeypatch.setattr("app.start.first_records", partial(KafkaFirstRecords, seconds=PATIENCE))
    source, group = topics("raw", 4), topics("clean")
    file = tmp_path / "winnow.yaml"
    file.write_text(
        json.dumps(settings(broker.bootstrap, group=group, sources=[source], sink=group, dead=topics("dead")))
    )
    hour_ago = round((time.time() - 3600) * 1000)
    produce(broker.bootstrap, source, [Written(line(n), None, 0, timestamp=hour_ago) for n in range(10)])
    produce(broker.bootstrap, source, [Written(line(n), None, 1) for n in range(3)])
    own: dict[str, str | int] = {"transactional.id": f"upstream-{group}", "transaction.timeout.ms": 600_000}
    upstream = Producer({"bootstrap.servers": broker.bootstrap, **own})
    upstream.init_transactions(PATIENCE)
    upstream.begin_transaction()
    upstream.produce(source, line(1), partition=2)
    upstream.commit_transaction(PATIENCE)
    upstream.begin_transaction()
    upstream.produce(source, line(1), partition=3)
    upstream.flush(PATIENCE)
    commit(broker.bootstrap, group, {(source, 0): 4, (source, 1): 3, (source, 2): 1})

    code, found = lag(file)
    high = ends(broker.bootstrap, source)
    upstream.abort_transaction(PATIENCE)

    first, second, third, fourth = found["partitions"]
    assert 0 == code
    assert (4, 10, 6, 6) == tuple(first[key] for key in ("current_offset", "log_end_offset", "lag", "lag_to_end"))
    assert 3600 <= first["lag_seconds"] < 3600 + PATIENCE
    assert (0, 0.0) == (second["lag"], second["lag_seconds"])
    assert (1, 0.0) == (third["lag"], third["lag_seconds"]), "only a control record waits"
    assert (None, 0, 1) == tuple(fourth[key] for key in ("lag", "last_stable_offset", "log_end_offset"))
    assert high == {(source, each["partition"]): each["log_end_offset"] for each in found["partitions"]}
    assert found["max_lag_seconds"] == first["lag_seconds"]


def test_what_is_wrong_ends_with_1(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """An offset above the end is named, in the table too, and the exit code is 1."""
    source, group = topics("raw"), topics("clean")
    file = tmp_path / "winnow.yaml"
    file.write_text(
        json.dumps(settings(broker.bootstrap, group=group, sources=[source], sink=group, dead=topics("dead")))
    )
    commit(broker.bootstrap, group, {(source, 0): 4})

    code, found = lag(file)
    table = CliRunner().invoke(main, ["lag", "-c", str(file)])

    assert (1, 1) == (code, table.exit_code)
    assert found["partitions"][0]["problem"].startswith(
        "the partition was truncated to 0, or the group's offset was set too"
    )
    assert "PROBLEM" in table.stdout.splitlines()[0]
