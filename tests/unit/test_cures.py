"""Every suggested command works with the configuration of its mode."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from app import cures, start
from app.cli import main
from app.config import Config
from app.cures import KafkaTools
from app.driver.clients import Clients
from app.driver.diagnostics import lacking
from app.driver.discover import Discovery
from app.driver.owners import Owners
from app.driver.starting_offsets import PartitionOffsets, StartPolicy, decide
from app.errors import (
    Blocked,
    CorruptOffset,
    ForeignSink,
    OffsetPending,
    TooManyDeadLetters,
    Truncated,
    Unreachable,
)
from app.executor.lane.search import refused_cure
from app.kafka.failures import CURES
from app.model import CommittedOffset, Owner, Partition, Watermarks
from app.offsets.metadata import OffsetMetadata
from app.runtime import REAL
from tests.fakes.driver import DriverKafka
from tests.unit.config.good import GOOD

P = Partition("raw-logs", 3)
STORES: dict[str, dict[str, Any]] = {
    "kafka": {"name": "kafka"},
    "files": {"name": "files", "url": "file:///tmp"},
    "redis": {"name": "redis", "url": "redis://there"},
    "zookeeper": {"name": "zookeeper", "hosts": "there"},
    "mysql": {"name": "mysql", "host": "there", "user": "u", "database": "d"},
    "hbase": {"name": "hbase", "host": "there"},
}
# Nothing but the options of these tools is known here; the rest of them is run by the tests of the preflight.
TOOLS = {
    "kafka-acls": {"--add", "--allow-principal", "--operation", "--topic", "--group", "--cluster", "--transactional-id"}
    | {"--resource-pattern-type"},
    "kafka-configs": {"--alter", "--topic", "--add-config"},
    "kafka-topics": {"--create", "--alter", "--topic", "--partitions", "--replication-factor", "--config"},
    "kafka-consumer-groups": {"--delete", "--group"},
    "kafka-transactions": {"--topic", "--partition", "--start-offset", "--max-transaction-timeout"},
}


def mode(store: str, *, two_clusters: bool) -> dict[str, Any]:
    guarantee = "exactly-once" if store == "kafka" else "at-least-once"
    sink = {"sink": {**GOOD["sink"], "kafka": {"bootstrap.servers": "centre:9092"}}} if two_clusters else {}
    return GOOD | {"delivery.guarantee": guarantee, "offsets": {"store": STORES[store]}} | sink


def at(committed: CommittedOffset | None, topic_id: str = "id-1") -> PartitionOffsets:
    return PartitionOffsets(P, topic_id, Watermarks(100, 200, 200), committed)


def blocked(committed: CommittedOffset | None, had: str | None = None, *, keeps: bool = True) -> str:
    policy = StartPolicy("error", "error", keeps)
    with pytest.raises(Blocked) as caught:
        decide(at(committed), policy, first_seen=None, had_offset_in=had, is_new=False, cut=None)
    return caught.value.cure


def written(metadata: OffsetMetadata) -> CommittedOffset:
    return CommittedOffset(150, str(metadata))


def foreign_sink() -> str:
    owners = Owners(Owner(1, "here", "clean"), "g", REAL)
    with pytest.raises(ForeignSink) as caught:
        owners.observe({P: written(OffsetMetadata("id-1", owner=Owner(1, "there", "other")))})
    return caught.value.cure


def left_behind(settings: dict[str, Any]) -> str:
    kafka, source = DriverKafka(p0=(0, 10)), DriverKafka(p0=(0, 10))
    source.committed[Partition("raw", 0)] = CommittedOffset(4)
    clients = Clients(
        topics=kafka,
        destinations=kafka,
        group=kafka,
        fence=kafka,
        offsets=kafka,
        pauses=kafka.pauses,
        ages=kafka,
        find_cut=kafka.find_cut,
        placeholders=kafka,
        copies=source,
    )
    (error,) = Discovery(Config.model_validate(settings), clients).discover().blocked.values()
    return error.cure


def all_cures(settings: dict[str, Any]) -> Iterator[str]:
    """Yield the commands suggested in a mode."""
    yield blocked(None)
    yield blocked(None, "id-1")
    yield blocked(None, "id-0")
    yield blocked(written(OffsetMetadata("id-0")))
    yield blocked(CommittedOffset(5))
    yield blocked(CommittedOffset(500))
    yield blocked(CommittedOffset.not_readable("x"))
    yield Truncated(P, 5, 3).cure
    yield CorruptOffset(P, "x").cure
    yield TooManyDeadLetters(P, "x").cure
    yield refused_cure(P, 7)
    yield foreign_sink()
    yield f"to resume, run {cures.RESUME}"
    yield from (cures.LOOK_AGAIN, cures.ADD_CAPACITY, cures.TRANSACTIONS, cures.ABORT_TRANSACTIONS)
    yield cures.audit("2026-11-24T06:00:00Z")
    yield f"{cures.SHOW_HISTORY} lists what there is"
    if settings["offsets"]["store"]["name"] == "kafka":
        yield OffsetPending(P).cure
    if "kafka" in settings["sink"]:
        yield left_behind(settings)


def commands(cure: str, program: str) -> list[list[str]]:
    found = [each.text for each in cures.parts(cure, cures.PLACEHOLDERS) if each.command]
    return [shlex.split(each.replace("OFFSET", "7")) for each in found if each.startswith(program)]


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each command up to its first request to Kafka, which shows that its options and configuration are valid."""

    def clients(_: Config) -> Clients:
        raise Unreachable("so far")

    monkeypatch.setattr(start, "clients", clients)
    monkeypatch.setattr(start, "transaction_log", clients)


@pytest.mark.usefixtures("reached")
@pytest.mark.parametrize("two_clusters", [False, True])
@pytest.mark.parametrize("store", STORES)
def test_winnows_own_commands(store: str, two_clusters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Winnow's own commands accept the configuration of each mode, and get as far as Kafka."""
    settings = mode(store, two_clusters=two_clusters)
    (tmp_path / cures.FILE).write_text(yaml.safe_dump(settings))
    monkeypatch.chdir(tmp_path)

    tried = [words for cure in all_cures(settings) for words in commands(cure, "winnow ")]

    assert len(tried) >= 12
    for words in tried:
        done = CliRunner().invoke(main, words[1:])
        if words[1:3] == ["offsets", "history"] and store != "hbase":
            assert "keeps no history" in done.stderr or "no history is kept" in done.stderr
        else:
            assert (3, "winnow: so far") == (done.exit_code, done.stderr.strip()), (words, done.stderr)


@pytest.mark.parametrize("store", STORES)
def test_no_cure_asks_kafkas_tool_for_an_offset(store: str) -> None:
    """kafka-consumer-groups knows no other store; only a group on the source's cluster is its own."""
    settings = mode(store, two_clusters=True)

    found = [words for cure in all_cures(settings) for words in commands(cure, "kafka-consumer-groups")]

    source = GOOD["kafka"]["bootstrap.servers"]
    assert [["--bootstrap-server", source, "--delete", "--group", "idc-cleansing"]] == [words[1:] for words in found]


def test_where_nothing_is_kept_nothing_is_set() -> None:
    """With the store `none`, a restart starts over."""
    for cure in (blocked(None, "id-1", keeps=False), blocked(written(OffsetMetadata("id-0")), keeps=False)):
        assert cures.RESTART == cure
    assert "winnow offsets" not in blocked(None, keeps=False)


@pytest.mark.parametrize("kafka", [{"bootstrap.servers": "a:1,b:2"}, {"security.protocol": "SASL_SSL"}], ids=str)
def test_kafkas_own_tools(kafka: dict[str, str]) -> None:
    """Each command names the cluster, has the login file if one is needed, and uses only known options."""
    tools = KafkaTools.of(kafka)
    (right,) = lacking("topic", "raw", ["Read"], frozenset(), tools)
    printed = [
        right.error.cure,
        tools.allow(["DescribeConfigs"], "--cluster"),
        tools.configure("raw", "cleanup.policy=delete"),
        tools.create_topic("raw", 3, {"cleanup.policy": "compact"}),
        tools.create_topic("raw", 3, {}, replicas=3),
        tools.grow_topic("raw", 3),
        tools.delete_group("g"),
        tools.list_transactions(),
        tools.find_hanging("--topic raw --partition 3"),
        tools.abort("--topic raw --partition 3", 7),
        *(cure for cure in CURES.values() if "kafka-" in cure),
    ]
    for words in map(shlex.split, printed):
        options = {word for word in words if word.startswith("--")}
        assert "--bootstrap-server" == words[1]
        assert words[2] in (kafka.get("bootstrap.servers"), cures.BROKERS)
        assert options - {"--bootstrap-server", "--command-config"} <= TOOLS[words[0]], words
        assert words[2] == cures.BROKERS or ("security.protocol" in kafka) is ("--command-config" in options)


@pytest.mark.parametrize("cure", [KafkaTools().find_hanging("--topic raw"), OffsetPending(P).cure])
def test_a_transaction_that_hangs_is_found_when_the_alert_comes(cure: str) -> None:
    """The tool leaves out what is younger than a number of minutes, by default 15; the first alert comes after one."""
    assert "--max-transaction-timeout 1" in cure


SHOWN = cures.CommandLine("-c '/etc/my, own/winnow.yaml' --set group.id=g", "--bootstrap-server a:1,b:2")


@pytest.mark.parametrize("two_clusters", [False, True])
def test_a_cure_is_its_words_and_its_exact_commands(two_clusters: bool) -> None:
    """Nothing is left out; each command names the configuration and the brokers, and no word reads like a command."""
    settings = mode("kafka", two_clusters=two_clusters)
    for cure in all_cures(settings):
        assert cure == "".join(each.text for each in cures.parts(cure, cures.PLACEHOLDERS))
        shown = list(cures.parts(cure, SHOWN))
        assert any(each.command for each in shown)
        for each in shown:
            if not each.command:
                assert not NAMED.search(each.text)
            elif each.text.startswith("winnow "):
                words = shlex.split(each.text)
                assert ["-c", "/etc/my, own/winnow.yaml", "--set", "group.id=g"] == words[
                    (at := words.index("-c")) : at + 4
                ]
            else:
                assert cures.BROKERS not in each.text


def test_a_cure_without_a_command_is_words() -> None:
    """The page shows it as it is."""
    assert [("bring its broker back", False)] == list(cures.parts("bring its broker back", SHOWN))
    assert [] == list(cures.parts("", SHOWN))


NAMED = re.compile(r"\b(kafka-(acls|configs|topics|consumer-groups|transactions)(\.sh)?|winnow [a-z]+( [a-z]+)?) -")


def test_commands_are_written_in_one_place() -> None:
    """Commands written anywhere else would not be tested here; tests/unit/cli/test_help.py tests the examples of `--help`."""
    strays = {
        str(file): node.value
        for file in Path(cures.__file__).parent.rglob("*.py")
        if file.name != "cures.py" and file.parent.name != "demo"
        for tree in [ast.parse(file.read_text())]
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMED.search(node.value)
        if not node.value.startswith("Example: ")
        and node.value
        not in {ast.get_docstring(each, clean=False) for each in ast.walk(tree) if isinstance(each, DOCUMENTED)}
    }

    assert not strays


DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
