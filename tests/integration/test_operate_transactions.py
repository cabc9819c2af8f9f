"""`winnow transactions` on a real Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from app.cli import main
from app.embedded.broker import Cluster
from app.model import Partition, transactional_id
from tests.conftest import Topics
from tests.independent import commit
from tests.integration.service import settings
from tests.support.waiting import PATIENCE, until


@pytest.mark.usefixtures("brief_looks")
def test_what_is_left_open_is_listed_and_aborted(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """It lists and aborts only the group's own transactions. Readers continue, and the owner is fenced."""
    source, sink = topics("raw", 2), topics("clean")
    file = tmp_path / "winnow.yaml"
    dead = topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead, commit_interval="100ms")
    file.write_text(json.dumps(config))
    commit(broker.bootstrap, sink, {(source, 0): 0, (source, 1): 0})

    def begun(identity: str) -> Producer:
        own: dict[str, str | int] = {"transactional.id": identity, "transaction.timeout.ms": 600_000}
        producer = Producer({"bootstrap.servers": broker.bootstrap, **own})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        producer.produce(sink, b"x")
        producer.flush(PATIENCE)
        return producer

    def transactions(command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        done = CliRunner().invoke(main, ["transactions", command, "-c", str(file), "--json", *arguments])
        return done.exit_code, json.loads(done.stdout) if done.stdout else {"error": done.stderr}

    def ages() -> list[float]:
        return [each["age_seconds"] for each in transactions("ls")[1]["transactions"]]

    ended = begun(transactional_id(sink, Partition(source, 0)))
    ended.commit_transaction(PATIENCE)
    crashed = begun(transactional_id(sink, Partition(source, 1)))
    foreign = begun(transactional_id(f"{sink}-other", Partition(source, 1)))
    # The markers of the one that has ended may be late.
    until(lambda: [each >= 1 for each in ages()] == [True], "a second of one transaction alone")

    code, found = transactions("ls")
    dry = transactions("abort", "--dry-run")
    _, still = transactions("ls")
    aborted = transactions("abort")
    until(lambda: not transactions("ls")[1]["transactions"], "the end of the transaction")

    assert 0 == code
    (one,) = found["transactions"]
    assert ({"topic": source, "partition": 1}, "ongoing") == (one["source"], one["state"])
    assert 1 <= one["age_seconds"] < 3_600
    assert (0, False) == (dry[0], dry[1]["done"])
    assert 1 == len(still["transactions"])
    assert (0, True) == (aborted[0], aborted[1]["done"])
    with pytest.raises(Exception, match=r"(?i)fenced"):
        crashed.commit_transaction(PATIENCE)
    foreign.commit_transaction(PATIENCE)
