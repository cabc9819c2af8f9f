"""`winnow doctor` on a real Kafka, beside a running service and after it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli import main
from app.embedded.broker import Cluster, HeldPorts
from tests.conftest import Topics
from tests.independent import Written, line, produce, read
from tests.integration.in_process import Running
from tests.integration.service import settings
from tests.support.configuration import file_of
from tests.support.waiting import PATIENCE, until

SECRET, MARK = "hush-secret", b"hush-line"


def doctor(file: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the first report of which no part is unknown: a new broker may still be electing its coordinators."""

    def look() -> list[tuple[int, dict[str, Any]]]:
        done = CliRunner().invoke(main, ["doctor", "-c", str(file), "--json", *arguments])
        *_, last = done.stdout.splitlines() or [""]  # a service in this process logs there, too
        found = json.loads(last)
        unknown = any(each["severity"] == "unknown" for each in found["findings"])
        return [] if unknown else [(done.exit_code, found)]

    return until(look, "a report without unknown parts")[0]


def record(number: int) -> Written:
    """Return a record with a mark; every fifth is invalid."""
    good = line(number).replace(b"http://x.cn/", b"http://%s/" % MARK)
    return Written(good if number % 5 else b"%s %d" % (MARK, number), MARK, number % 3)


def test_one_look_at_everything(
    broker: Cluster, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A working service is healthy. A copied line is found after its end, and no archive holds a secret or a record."""
    monkeypatch.setattr("app.operate.served.ANSWER_SECONDS", PATIENCE)
    source, sink, dead, bundle = topics("raw", 3), topics("clean", 2), topics("dead", 2), tmp_path / "found.tar.gz"
    ports = HeldPorts(1)
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead, http={"port": ports[0]})
    config["kafka"] |= {"sasl.username": f"{SECRET}-user", "sasl.password": SECRET}
    config["parser"] = {"samples": [{"line": MARK.decode(), "reason": "empty"}]}
    file = file_of(config, tmp_path)
    produce(broker.bootstrap, source, [record(number) for number in range(300)])

    with Running(config):
        until(lambda: len(read(broker.bootstrap, sink)) == 240, "lines")
        beside = doctor(file, "--bundle", str(bundle))
        first = unpacked(bundle)
    (copied, *_) = read(broker.bootstrap, sink)
    produce(broker.bootstrap, sink, [Written(copied.value, copied.key, copied.partition, copied.timestamp)])
    produce(broker.bootstrap, source, [record(number) for number in range(300, 303)])
    afterwards = doctor(file, "--bundle", str(bundle))

    sample = ("wrong", "1 of 1 samples have another outcome than expected")
    assert (1, [sample]) == (beside[0], findings(beside[1]))
    notes = {each["part"]: each["note"] for each in beside[1]["parts"]}
    assert ("the service is running", "300 of the newest records") == (notes["status"], notes["audit"])
    copy, silent = (each for each in findings(afterwards[1]) if each != sample)
    assert ("wrong", "the sink has the line of this record more than once") in (copy, silent)
    assert ("wrong", "no service works: no offset was committed within 3 s, and 3 wait in 3 partitions") in (
        copy,
        silent,
    )
    for contents in (first, unpacked(bundle)):
        assert json.loads(contents["winnow-doctor/report.json"])["group"] == sink
        assert source in contents["winnow-doctor/lag.json"]
        assert not [name for name, text in contents.items() if SECRET in text or MARK.decode() in text]
    assert "running" == json.loads(first["winnow-doctor/status.json"])["phase"]


def findings(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is wrong, without warnings."""
    return [(each["severity"], each["what"]) for each in found["findings"] if each["severity"] != "warns"]


def unpacked(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle) as archive:
        members = {each.name: archive.extractfile(each) for each in archive}
        return {name: content.read().decode() for name, content in members.items() if content}
