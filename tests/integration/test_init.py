"""From a file of own logs to a running service: every step that `winnow init` suggests, on a real Kafka."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from app.cli import main
from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, produce, read
from tests.integration.in_process import run

LINE = '203.0.113.{} - - [24/Nov/2026:06:00:00 +0000] "GET /{} HTTP/1.1" 200 612 "-" "curl/8"'
CLEANSED = "203.0.113.{}|-|24/Nov/2026:06:00:00 +0000|GET|/{}|HTTP/1.1|200|612|-|curl/8"


def winnow(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def test_from_a_sample_to_a_service(
    broker: Cluster, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printed topics are all that was missing, and the lines of the sample and others are cleansed."""
    monkeypatch.chdir(tmp_path)
    topic = topics("web", 3)
    Path("access.log").write_text("".join(LINE.format(n, "a") + "\n" for n in range(20)) + "rubbish\n")

    begun = winnow(
        "init", "--sample", "access.log", "-o", "winnow.yaml", "--bootstrap", broker.bootstrap, "--topic", topic
    )
    assert 0 == begun.exit_code, begun.output
    said = begun.stderr.splitlines()
    assert {f"topic {topic} has 3 partitions", f"topic {topic}.clean is missing", f"topic {topic}.dlq is missing"} <= {
        *said
    }
    lacking = winnow("check", "-c", "winnow.yaml", "--connect")
    created = [shlex.split(each) for each in said if each.startswith("  kafka-topics ")]
    for words in created:
        options = dict(zip(words[1::2], words[2::2], strict=False)) | dict(zip(words[4::2], words[5::2], strict=False))
        assert broker.bootstrap == options["--bootstrap-server"]
        broker.create_topic(
            options["--topic"], int(options["--partitions"]), replication=int(options["--replication-factor"])
        )
    check, start = [shlex.split(each) for each in said[said.index("next:") + 1 :]]
    checked = winnow(*check[1:])

    assert (3, 2) == (lacking.exit_code, len(created)), lacking.output
    assert 0 == checked.exit_code, checked.output
    assert ["winnow", "run", "-c", "winnow.yaml"] == start
    produce(broker.bootstrap, topic, [Written(LINE.format(n, "b|c").encode(), None, n % 3) for n in range(6)])
    produce(broker.bootstrap, topic, [Written(b"rubbish", None, 0)])
    code, _ = run(yaml.safe_load(Path("winnow.yaml").read_text()) | {"http": {"enabled": False}})

    assert 0 == code
    lines = {each.value.decode() for each in read(broker.bootstrap, f"{topic}.clean") if each.value}
    assert {CLEANSED.format(n, "b%7Cc") for n in range(6)} == lines
    assert [b"rubbish"] == [each.value for each in read(broker.bootstrap, f"{topic}.dlq")]
