"""`winnow init`: from a file of lines to a configuration that `winnow check` accepts."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from app import start
from app.cli import main
from app.cures import KafkaTools
from app.errors import Unreachable
from parsers.registry import PARSERS
from tests.fakes.driver import DriverKafka, FakeCluster
from tests.independent import line
from tests.support.docs import ROOT, commands, fenced
from tests.support.reference import keys

COMBINED = '203.0.113.%d - - [24/Nov/2026:06:00:00 +0000] "GET /a|b HTTP/1.1" 200 612 "-" "curl/8"'
LINES = [*(COMBINED % number for number in range(9)), "rubbish"]
SAMPLES: dict[str, list[str]] = {
    "regex": LINES,
    "idc-access-log": [line(number).decode() for number in range(5)],
    "json": ['{"a": {"url": "/x"}, "b": 1}', '{"a": {"url": "é"}, "b": 2}', "{"],
    "logfmt": ['level=info msg="a b"', "level=warn msg=x"],
    "csv": ["time,name", "2026-11-24,a", '2026-11-25,"b,c"'],
    "delimited": ["a\tb c", "d\te: f"],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments: str, lines: list[str] | bytes = LINES) -> Result:
    """Run the command on a file of these lines."""
    Path("access.log").write_bytes(
        lines if isinstance(lines, bytes) else "".join(f"{each}\n" for each in lines).encode()
    )
    return CliRunner().invoke(main, ["init", "--sample", "access.log", *arguments])


@pytest.mark.parametrize("parser", PARSERS.built_in)
def test_check_accepts_what_is_written(parser: str) -> None:
    """For a sample of each format, with lines that must have the same result from then on."""
    done = init("-o", "winnow.yaml", lines=SAMPLES[parser])
    assert (0, "") == (done.exit_code, done.stdout), done.output
    checked = CliRunner().invoke(main, ["check"])

    written: dict[str, Any] = yaml.safe_load(Path("winnow.yaml").read_text())
    samples = written["parser"].pop("samples")
    assert parser == written["parser"]["name"]
    assert 0 == checked.exit_code, checked.output
    assert checked.stdout.endswith(f"winnow.yaml is right, and all {len(samples)} samples give what they should\n")


def test_what_is_written() -> None:
    """All that a service needs: three lines with their outputs, and one that is rejected with its reason."""
    done = init("--topic", "web")
    written = yaml.safe_load(done.stdout)

    assert {
        "group.id": "web-cleansing",
        "source": {"topics": ["web"]},
        "sink": {"topic": "web.clean"},
        "dead.letters": {"topic": "web.dlq"},
        "kafka": {"bootstrap.servers": "localhost:9092"},
    } == {key: value for key, value in written.items() if key != "parser"}
    samples = written["parser"]["samples"]
    assert [COMBINED % 0, COMBINED % 4, COMBINED % 8, "rubbish"] == [each["line"] for each in samples]
    assert "203.0.113.4|-|24/Nov/2026:06:00:00 +0000|GET|/a%7Cb|HTTP/1.1|200|612|-|curl/8" == samples[1]["output"]
    assert "no_match" == samples[3]["reason"]


def test_its_comments_are_those_of_the_documentation() -> None:
    """No key has a text of its own here."""
    comments = " ".join(each.strip(" #") for each in init().stdout.splitlines() if each.lstrip().startswith("#"))

    for key, _, meaning in keys():
        if key in (
            "group.id",
            "source.topics",
            "sink.topic",
            "dead.letters.topic",
            "kafka",
            "parser.name",
            "parser.samples",
        ):
            assert meaning in comments
    assert "the cleansed line, with `{name}` for each field" in comments


def test_it_says_what_it_is_based_on_and_what_to_type_next() -> None:
    """On stderr: the configuration alone is on stdout."""
    done = init()

    assert [
        "the parser regex with log.format 'combined' takes 9 of 10 lines (90.0%)",
        "the next best, delimited with separator '|', takes 9 of 10 lines (90.0%)",
        "it rejects line 10 as no_match: the line does not match the pattern",
        "  rubbish",
        "next:",
        "  winnow check -c winnow.yaml --connect",
        "  winnow run -c winnow.yaml",
    ] == done.stderr.splitlines()
    assert init("-o", "my file.yaml").stderr.endswith(
        "my file.yaml is written\nnext:\n  winnow check -c 'my file.yaml' --connect\n  winnow run -c 'my file.yaml'\n"
    )


def test_a_header_is_told() -> None:
    """It would be a dead letter of each file."""
    assert "line 1 names the fields: the source should not have it" in init(lines=SAMPLES["csv"]).stderr.splitlines()


def test_a_file_is_replaced_only_on_demand() -> None:
    """It may have been edited."""
    Path("winnow.yaml").write_text("mine")
    refused = init("-o", "winnow.yaml")
    assert (2, "mine") == (refused.exit_code, Path("winnow.yaml").read_text())
    assert "winnow.yaml exists: --force replaces it" in refused.stderr

    assert 0 == init("-o", "winnow.yaml", "--force").exit_code
    assert "raw-logs" in Path("winnow.yaml").read_text()


@pytest.mark.parametrize(
    ("file", "why"), [("no/winnow.yaml", "No such file or directory"), ("w" * 300, "File name too long")]
)
@pytest.mark.parametrize("more", [[], ["--force"]], ids=str)
def test_a_file_that_cannot_be_written(file: str, why: str, more: list[str]) -> None:
    """It is wrong usage, told in one line."""
    done = init("-o", file, *more)

    assert 2 == done.exit_code, done.exception
    assert f"configuration: --output: {file}: {why}" == done.stderr.splitlines()[-1]


PROSE = [*(" ".join("abcdefghijkl"[:count]) for count in range(1, 10)), "a b", "\x1b[31mred"]


def test_no_parser_fits() -> None:
    """The closest is named with a line that it rejects, which cannot move the cursor."""
    done = init("-o", "winnow.yaml", lines=["\x1b[31mred", *PROSE])

    assert (1, False) == (done.exit_code, Path("winnow.yaml").exists())
    first, closest, why, rejected, more = done.stderr.splitlines()
    assert "winnow: no parser takes at least half of the lines of access.log" == first
    assert closest.startswith("the closest, delimited with separator ' ', takes 2 of 12 lines (16.7%)")
    assert "it rejects line 1 as field_count: the line has 1 field, not 2" == why
    assert r"  \x1b[31mred" == rejected
    page = more.split()[0]
    assert "docs/parsers.md" == page
    assert (ROOT / page).exists()


@pytest.mark.parametrize(
    ("lines", "said"), [(b"", "access.log has no lines"), (b"word\n" * 9, "no parser takes any line of access.log")]
)
def test_there_is_nothing_to_parse(lines: bytes, said: str) -> None:
    """Not one line has a format."""
    done = init(lines=lines)

    assert 1 == done.exit_code
    assert f"winnow: {said}" in done.stderr.splitlines()


def test_only_the_beginning_of_a_long_file_is_read() -> None:
    """And no more of a line than a record may hold."""
    assert "takes 1,000 of 1,000 lines" in init(lines=[COMBINED % 1] * 2_000).stderr
    assert 1 == init(lines=b"\xff" * (3 << 20)).exit_code


@pytest.mark.parametrize("topic", ["", "a b", "$(x)", "é", ".", ".."])
def test_a_topic_has_a_name_that_kafka_takes(topic: str) -> None:
    """It is part of commands."""
    assert 2 == init("--topic", topic).exit_code


class TestBootstrap:
    @pytest.fixture
    def cluster(self, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
        """Return a cluster that has the source topic only."""
        cluster = FakeCluster()
        cluster.partitions = {"web": 12}
        cluster.gone = {"web.clean", "web.dlq"}
        clients = replace(DriverKafka().clients, clusters=(cluster, cluster))
        monkeypatch.setattr(start, "clients", lambda _: clients)
        return cluster

    def commands(self, tool: str) -> list[str]:
        done = init("--topic", "web", "--bootstrap", "there:9092")
        assert 0 == done.exit_code, done.output
        assert {"bootstrap.servers": "there:9092"} == yaml.safe_load(done.stdout)["kafka"]
        return [each.strip() for each in done.stderr.splitlines() if each.startswith(f"  {tool} ")]

    def test_what_is_missing_is_created_like_the_source(self, cluster: FakeCluster) -> None:
        """With as many partitions, and three replicas at most."""
        create = (
            "kafka-topics --bootstrap-server there:9092 --create --topic web{} --partitions 12 --replication-factor {}"
        )

        assert [create.format(".clean", 3), create.format(".dlq", 3)] == self.commands("kafka-topics")
        cluster.replicas = 2
        assert [create.format(".clean", 2), create.format(".dlq", 2)] == self.commands("kafka-topics")
        cluster.replicas = 5
        assert [create.format(".clean", 3), create.format(".dlq", 3)] == self.commands("kafka-topics")
        cluster.gone = set()
        assert [] == self.commands("kafka-topics")
        cluster.gone = {"web"}
        assert [create.format("", 3).replace("12", "8")] == self.commands("kafka-topics")

    def test_the_rights_are_granted(self, cluster: FakeCluster) -> None:
        """Those of docs/security.md, which tests/unit/operate/test_beginning.py compares."""
        (read, *others) = self.commands("kafka-acls")

        assert cluster.tools.allow(["Read", "DescribeConfigs"], "--topic web") == read
        assert 4 == len(others)
        assert ["--topic", "web.clean", "--topic", "web.dlq"] == shlex.split(others[0])[-4:]

    @pytest.mark.usefixtures("cluster")
    def test_it_says_what_there_is(self) -> None:
        """The brokers, and each topic."""
        said = init("--topic", "web", "--bootstrap", "there:9092").stderr.splitlines()

        there = [
            "the cluster has 3 brokers",
            "topic web has 12 partitions",
            "topic web.clean is missing",
            "topic web.dlq is missing",
        ]
        assert there == said[(at := said.index(there[0])) : at + 4]

    def test_the_page_shows_what_it_says(self, cluster: FakeCluster) -> None:
        """On a new cluster of one broker; what the page leaves out is `…`."""
        cluster.replicas, cluster.gone = 1, {"web-logs", "web-logs.clean", "web-logs.dlq"}
        cluster.tools = KafkaTools("localhost:9092")
        section = (ROOT / "docs/getting-started.md").read_text().partition("## Your own logs")[2]
        (cat, _), (command, _), *_ = commands(section)
        subprocess.run(["bash", "-c", cat], check=True)

        done = CliRunner().invoke(main, shlex.split(command)[1:])

        before, after = next(fenced(section, "text")).split("…\n")
        assert (0, True, True) == (done.exit_code, done.stderr.startswith(before), done.stderr.endswith(after)), (
            done.stderr
        )

    def test_without_an_answer_nothing_is_written(self, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        """The command can be repeated as it is."""

        def unreachable() -> int:
            raise Unreachable("Kafka is not responding")

        monkeypatch.setattr(cluster, "size", unreachable)
        done = init("-o", "winnow.yaml", "--bootstrap", "there:9092")

        assert (3, False) == (done.exit_code, Path("winnow.yaml").exists())
        assert done.stderr.endswith("winnow: Kafka is not responding\n")
