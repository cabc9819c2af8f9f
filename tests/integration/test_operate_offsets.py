"""`winnow offsets show` and `winnow offsets reset` on a real Kafka, next to a running service."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from structlog.testing import capture_logs

from app.cli import main
from app.embedded.broker import Broker, Cluster
from app.errors import ServiceRuns
from app.model import Partition, transactional_id
from app.operate.running import WatchedOffsets
from app.runtime import Runtime, Timings
from tests.conftest import Topics
from tests.independent import Written, cleansed, client, commit, committed, line, produce, read, values
from tests.integration.in_process import Running
from tests.integration.in_process import run as run_service
from tests.integration.service import settings
from tests.support.logs import of_event
from tests.support.waiting import PATIENCE, until

HOUR = 3_600_000


class HourlySource:
    """A source of two partitions with ten lines each, an hour apart, and the command line for it."""

    def __init__(self, broker: Cluster, topics: Topics, folder: Path) -> None:
        self.bootstrap = broker.bootstrap
        self.source, self.group = topics("raw", 2), topics("clean", 2)
        self.config = settings(
            broker.bootstrap,
            group=self.group,
            sources=[self.source],
            sink=self.group,
            dead=topics("dead"),
            commit_interval="100ms",
        )
        self.file = folder / "winnow.yaml"
        self.file.write_text(json.dumps(self.config))
        self.began = round(time.time() * 1000) - 9 * HOUR - 60_000
        for number in range(2):
            lines = [Written(line(n, number), None, number, self.began + n * HOUR) for n in range(10)]
            produce(broker.bootstrap, self.source, lines)

    def command(self, *arguments: str) -> tuple[int, Any]:
        done = CliRunner().invoke(main, ["offsets", arguments[0], "-c", str(self.file), "--json", *arguments[1:]])
        return done.exit_code, json.loads(done.stdout) if done.stdout else done.stderr

    def committed(self) -> list[int]:
        return [offset for _, offset in sorted(committed(self.bootstrap, self.group, self.source).items())]


@pytest.fixture
def hourly(broker: Cluster, topics: Topics, tmp_path: Path) -> HourlySource:
    return HourlySource(broker, topics, tmp_path)


def test_a_backfill_beside_the_service(hourly: HourlySource) -> None:
    """A backfill ends before it fences anything, and the service continues in the same round."""
    patient = Runtime(timings=Timings(sign_of_life=PATIENCE))  # it looks only until it sees the service
    with Running(hourly.config) as end:
        until(lambda: [10, 10] == hourly.committed(), "the first lines")
        with capture_logs() as logs, pytest.raises(ServiceRuns, match="works for group"):
            run_service(hourly.config, runtime=patient)
        assert 0 == end()

    assert [] == of_event(logs, "partitions_fenced")


@pytest.mark.usefixtures("brief_looks")
def test_the_offsets_are_set(hourly: HourlySource) -> None:
    """Offsets can be set to each kind of position, for all partitions or some. A dry run changes nothing."""
    commit(hourly.bootstrap, hourly.group, {(hourly.source, 0): 4, (hourly.source, 1): 4})
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((hourly.began + 3 * HOUR) / 1000 + 1))

    dry = hourly.command("reset", "--to-earliest", "--dry-run")
    unchanged = hourly.committed()
    outcomes = {}
    for arguments in (
        ("--to-earliest",),
        ("--to-latest",),
        ("--shift-by", "-3", "--topic", f"{hourly.source}:1"),
        ("--to-offset", "5"),
        ("--to-current",),
        ("--to-datetime", moment),
        ("--by-duration", "90m"),
    ):
        code, found = hourly.command("reset", *arguments)
        assert (0, True) == (code, found["done"]), found
        outcomes[arguments[0]] = hourly.committed()

    assert (0, False) == (dry[0], dry[1]["done"])
    assert [(4, 0, -4)] * 2 == [
        tuple(each[key] for key in ("current_offset", "new_offset", "change")) for each in dry[1]["partitions"]
    ]
    assert [4, 4] == unchanged
    assert {
        "--to-earliest": [0, 0],
        "--to-latest": [10, 10],
        "--shift-by": [10, 7],
        "--to-offset": [5, 5],
        "--to-current": [5, 5],
        "--to-datetime": [4, 4],
        "--by-duration": [8, 8],
    } == outcomes


@pytest.mark.usefixtures("brief_looks")
def test_the_service_goes_on_from_there(hourly: HourlySource) -> None:
    """A stopped service that is reset cleanses those records again, and its counts start at that offset."""
    assert 0 == run_service(hourly.config)[0]
    code, before = hourly.command("show")

    assert 0 == hourly.command("reset", "--to-offset", "7", "--topic", f"{hourly.source}:0")[0]
    _, between = hourly.command("show")
    assert 0 == run_service(hourly.config)[0]
    _, after = hourly.command("show")

    assert 0 == code
    assert [(0, 10, 10), (0, 10, 10)] == [(each["since"], each["in"], each["out"]) for each in before["partitions"]]
    assert all(each["committed_by"]["sink"] == hourly.group for each in before["partitions"])
    assert (7, 7, 0, None) == tuple(
        between["partitions"][0][key] for key in ("current_offset", "since", "in", "committed_by")
    )
    assert (7, 3, 3) == tuple(after["partitions"][0][key] for key in ("since", "in", "out"))
    assert 23 == len(read(hourly.bootstrap, hourly.group))


def test_a_running_service_is_noticed_although_it_is_idle(hourly: HourlySource, tmp_path: Path) -> None:
    """A reset is refused while the service runs, even if it is idle, because it renews an offset each second."""
    look = WatchedOffsets.moved
    with Running(hourly.config) as stop, pytest.MonkeyPatch.context() as patient:
        until(lambda: hourly.committed() == [10, 10], "the end of the source")
        # A busy machine may be late with a commit, and the command would see an idle group.
        patient.setattr(WatchedOffsets, "moved", lambda commits: until(lambda: look(commits), "a commit"))
        refused = [hourly.command("reset", "--to-earliest") for _ in range(2)]
        files = json.dumps({"name": "files", "url": f"file://{tmp_path}"})
        moved = CliRunner().invoke(
            main, ["offsets", "migrate", "-c", str(hourly.file), "--from", "kafka", "--to", files]
        )
        assert [10, 10] == hourly.committed()
        assert 0 == stop()
    code, found = hourly.command("reset", "--to-earliest")

    for each in [*refused, (moved.exit_code, moved.stderr)]:
        assert 3 == each[0], each
        assert "is running: it committed" in each[1]
        assert "during the check: stop it, and try again" in each[1]
    assert (0, True) == (code, found["done"])
    assert [0, 0] == hourly.committed()


@pytest.mark.usefixtures("brief_looks")
def test_a_transaction_that_a_crash_left_open(hourly: HourlySource) -> None:
    """A reset fences a transaction left open by a crash, so that the transaction cannot replace the new offset."""
    commit(hourly.bootstrap, hourly.group, {(hourly.source, 0): 4, (hourly.source, 1): 4})
    identity = transactional_id(hourly.group, Partition(hourly.source, 0))
    own: dict[str, str | int] = {"transactional.id": identity, "transaction.timeout.ms": 600_000}
    crashed = Producer({"bootstrap.servers": hourly.bootstrap, **own})
    crashed.init_transactions(PATIENCE)
    crashed.begin_transaction()
    consumer = Consumer({"bootstrap.servers": hourly.bootstrap, "group.id": hourly.group})
    metadata = consumer.consumer_group_metadata()
    crashed.send_offsets_to_transaction([TopicPartition(hourly.source, 0, 9)], metadata, PATIENCE)

    code, found = hourly.command("reset", "--to-offset", "2")

    assert (0, True) == (code, found["done"])
    with pytest.raises(Exception, match=r"(?i)fenced"):
        crashed.commit_transaction(PATIENCE)
    assert [2, 2] == hourly.committed()


def test_what_cannot_be_set_changes_nothing(hourly: HourlySource) -> None:
    """If one partition has no offset to shift, no other is shifted either."""
    commit(hourly.bootstrap, hourly.group, {(hourly.source, 0): 4})

    code, found = hourly.command("reset", "--shift-by", "1")
    wrong = hourly.command("reset", "--shift-by", "1", "--topic", f"{hourly.source}:2")

    assert (1, False) == (code, found["done"])
    assert "the group has no offset in this partition" == found["partitions"][1]["note"]
    assert [4] == hourly.committed()
    assert 2 == wrong[0]
    assert f"--topic: {hourly.source}-2 does not exist: {hourly.source} has 2 partitions" in wrong[1]


@pytest.mark.usefixtures("brief_looks")
@pytest.mark.parametrize(("store", "clusters"), [("kafka", 2), ("files", 1), ("files", 2)])
def test_the_cure_for_a_topic_that_was_created_again(
    *,
    broker: Broker,
    second: Broker,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
    clusters: int,
) -> None:
    """The printed cure for a recreated topic works in every store: all of the new topic is read."""
    monkeypatch.chdir(tmp_path)
    centre = second if clusters == 2 else broker
    source, sink, dead = topics("raw"), topics("clean", 1, None, centre), topics("dead", 1, None, centre)
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead, http={"enabled": False})
    if clusters == 2:
        config["sink"]["kafka"] = {"bootstrap.servers": centre.bootstrap}
    if store == "files":
        (tmp_path / "offsets").mkdir()
        config |= {"delivery.guarantee": "at-least-once"}
        config |= {"offsets": {"store": {"name": "files", "url": (tmp_path / "offsets").as_uri()}}}
    Path("winnow.yaml").write_text(json.dumps(config))
    produce(broker.bootstrap, source, [Written(line(n)) for n in range(4)])
    assert 0 == run_service(config)[0]

    admin = client(broker.bootstrap)
    admin.delete_topics([source])[source].result(PATIENCE)
    until(lambda: source not in admin.list_topics(timeout=PATIENCE).topics, "the end of the topic")
    broker.create_topic(source, 1)
    produce(broker.bootstrap, source, [Written(line(n)) for n in range(10, 16)])
    checked = CliRunner().invoke(main, ["check", "-c", "winnow.yaml", "--connect"])
    (command,) = re.findall(r"winnow (offsets reset .*) \(or", checked.stdout)
    done = CliRunner().invoke(main, shlex.split(command))
    code = run_service(config)[0]

    assert 1 == checked.exit_code
    assert "deleted and recreated" in checked.stdout
    assert (0, 0) == (done.exit_code, code), done.output
    assert [*map(cleansed, range(4)), *map(cleansed, range(10, 16))] == values(read(centre.bootstrap, sink))
