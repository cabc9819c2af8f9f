"""The doctor examines every part, whatever happens to the others, and its exit code is that of the worst finding."""

from __future__ import annotations

import json
import re
import stat
import tarfile
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from app.config import read
from app.driver.diagnostics import Severity
from app.errors import ConfigError, NotAllowed, NotUsable, Unreachable
from app.facts import OpenTransaction
from app.model import CommittedOffset, Partition, Watermarks
from app.operate import served
from app.operate.audit import DEPTH
from app.operate.doctor import CODES, Examination, write_bundle
from parsers.contract import Parsed
from tests.fakes import FakeKafka, FakeOffsets
from tests.fakes.audits import CLEAN, DEAD, RAW
from tests.fakes.driver import FakeCluster
from tests.fakes.patients import END, Patient, broken
from tests.fakes.pauses import PausedFor
from tests.support.docs import ROOT
from tests.unit.config.good import GOOD

PARTS = ["lag", "configuration", "preflight", "status", "transactions", "flow", "audit"]


def found(report: Examination) -> list[tuple[str, str, str]]:
    return [(each.severity.value, ", ".join(each.where), each.what) for each in report.findings]


def notes(report: Examination) -> dict[str, str]:
    return {each.part: each.note for each in report.parts}


def test_a_healthy_service() -> None:
    """Each part says what it has seen, nothing is wrong, and nothing has changed."""
    patient = Patient()

    report = patient.examine()

    assert (0, []) == (report.code, found(report))
    assert {
        "lag": "1 partitions, lag 0, at most 0.0 s",
        "configuration": "0 samples",
        "preflight": "3 checks are ok",
        "status": "the address of the service is not known: see --status",
        "transactions": "0 open",
        "flow": "watched for 3 s",
        "audit": "9 of the newest records",
    } == notes(report)
    assert [] == patient.kafka.fenced
    assert [1] * len(PARTS) == patient.done


def test_the_report_as_json() -> None:
    """One object with findings and parts."""
    patient = Patient()
    patient.works = lambda: None

    value = json.loads(json.dumps(patient.examine().as_json()))

    assert ["version", "group", "findings", "parts"] == list(value)
    assert (1, "g") == (value["version"], value["group"])
    (finding,) = value["findings"]
    assert ["severity", "what", "where", "cure"] == list(finding)
    assert ("warns", ["the group"]) == (finding["severity"], finding["where"])
    assert {"part": "flow", "note": "watched for 3 s", "findings": 1} in value["parts"]


@pytest.mark.parametrize(
    ("instrument", "part"),
    [("first_records", "lag"), ("parse", "configuration"), ("open_transactions", "transactions"), ("cleanse", "audit")],
)
def test_a_part_that_breaks_hides_no_other(instrument: str, part: str) -> None:
    """A bug is a finding with its place, and without its text, which may quote a record."""
    patient = Patient("parser.samples=[{line: x, output: y}]")
    works = patient.instruments()._replace(parse=lambda lines: parsed(lines, "y"))
    broke = works._replace(**{instrument: Broken() if instrument == "first_records" else broken})  # type: ignore[arg-type]  # whichever it is
    patient.kafka.committed[RAW] = replace(
        patient.kafka.committed[RAW], offset=END - 1
    )  # so that a first record is read

    healthy, report = patient.examine(works), patient.examine(broke)

    assert 0 == healthy.code
    (finding,) = set(found(report)) - set(found(healthy))
    assert ("unknown", part) == finding[:2]
    assert finding[2].startswith("an unexpected ZeroDivisionError in patients.py:")
    assert PARTS == [each.part for each in report.parts]
    assert [part] == [each.part for each in report.parts if not each.note]
    assert 4 == report.code
    assert "SECRET" not in str(report)


class Broken:
    times = staticmethod(broken)


def parsed(lines: pa.BinaryArray, line: str) -> Parsed:
    """Return the outcome of a parser that makes the same of every line."""
    rows = np.arange(len(lines), dtype=np.int32)
    none, text = np.array([], np.int32), pa.array([], pa.string())
    return Parsed(pa.array([line.encode()] * len(lines), pa.binary()), rows, none, text, text)


def test_a_right_that_is_missing_hides_no_other() -> None:
    """It is a finding with the command that grants it."""
    patient = Patient()
    refused = patient.instruments()._replace(open_transactions=refuse)
    patient.works = lambda: None

    report = patient.examine(refused)

    assert ("unknown", "transactions", "Winnow lacks Read on topic '__transaction_state'") in found(report)
    assert "kafka-acls …" in [each.cure for each in report.findings]
    assert "warns" in [each.severity for each in report.findings]


def refuse(_since: int) -> list[OpenTransaction]:
    raise NotAllowed("Winnow lacks Read on topic '__transaction_state'", "kafka-acls …")


def test_a_store_that_is_down() -> None:
    """The service could not work, so the code is 3. The parts that need no offsets are examined."""
    patient = Patient()
    down = Unreachable("redis does not answer", "start it")
    patient.kafka.load = partial(raising, down)  # type: ignore[method-assign]
    patient.open = [OpenTransaction(RAW, "ongoing", 0, 1, 1)]

    report = patient.examine()

    assert 3 == report.code
    assert ("refuses", "Kafka", "redis does not answer") == found(report)[0]
    assert ("unknown", "lag, flow, audit", "redis does not answer") in found(report)
    assert "1 open" == notes(report)["transactions"]
    assert ["wrong"] == [each.severity for each in report.findings if "raw-0" in each.where]


def raising(error: Exception, *_: object, **__: object) -> dict[Partition, CommittedOffset]:
    raise error


def test_what_a_preflight_finds() -> None:
    """Refusals and warnings keep their cures; what is all right is only counted."""
    patient = Patient()
    patient.kafka.clusters = cluster = FakeCluster()
    cluster.rights = {"g.pause": frozenset()}

    warned = patient.examine()
    cluster.rights["raw"] = frozenset({"Describe", "DescribeConfigs"})
    refused = patient.examine()

    assert (0, "warns") == (warned.code, found(warned)[0][0])
    assert (3, "refuses", "Winnow lacks Read on topic 'raw'") == (
        refused.code,
        found(refused)[0][0],
        found(refused)[0][2],
    )
    assert refused.findings[0].cure.startswith("kafka-acls --bootstrap-server there:9092 --add ")


def test_a_blocked_partition_is_said_once() -> None:
    """The preflight and the lag find the same."""
    patient = Patient()
    patient.kafka.watermark[RAW] = (5, END)
    patient.kafka.committed[RAW] = CommittedOffset(3)

    report = patient.examine()

    assert 1 == report.code
    assert [("wrong", "raw-0@3", "offsets 3 to 4 (at most 2) were deleted before they were read")] == found(report)


def test_a_loss_that_blocks_nothing_is_said() -> None:
    """With `out.of.range: nearest` the service goes on, so the preflight has nothing to say."""
    patient = Patient("out.of.range=nearest")
    patient.kafka.watermark[RAW] = (5, END)
    patient.kafka.committed[RAW] = CommittedOffset(3)

    assert ("wrong", "raw-0@3", "2 offsets were deleted before they were read") in found(patient.examine())


def test_a_service_that_is_down_or_paused() -> None:
    """If nothing is committed while records wait, no service works, unless it is paused."""
    patient = Patient()
    patient.kafka.committed[RAW] = CommittedOffset(END - 2)
    patient.works = lambda: None

    down = patient.examine()
    patient.kafka.pauses = PausedFor(2)
    paused = patient.examine()

    silent = "no service works: no offset was committed within 3 s, and 2 wait in 1 partitions"
    assert (1, [("wrong", "the group", silent)]) == (down.code, found(down))
    assert (0, [("warns", "the group", "paused since 1970-01-01T00:00:05+00:00, from ops 1")]) == (
        paused.code,
        found(paused),
    )


@pytest.mark.parametrize("phase", ["starting", "running"])
def test_a_service_that_answers_is_not_to_be_started_again(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for executors, or its driver hangs; a second one would only be in its way."""
    patient = Patient()
    patient.url = HERE
    patient.kafka.committed[RAW] = CommittedOffset(END - 2)
    patient.works = lambda: None
    monkeypatch.setattr(served, "status", lambda *_: {"phase": phase, "now": 1.0})

    report = patient.examine()

    silent = f"the service at {HERE} is {phase}: no offset was committed within 3 s, and 2 wait in 1 partitions"
    assert (1, [("wrong", "the group", silent)]) == (report.code, found(report))
    assert report.findings[0].cure.startswith("look again: winnow lag ")


def test_retention_is_near() -> None:
    """The age of the first unread record is compared with the topic's retention."""
    patient = Patient()
    patient.kafka.committed[RAW] = CommittedOffset(END - 2)
    patient.first_records.known[RAW] = round((time.time() - 3_000) * 1000)
    patient.kafka.keeps = 4_000

    report = patient.examine()

    assert 1 == report.code
    assert "its first unread record is 3000 s old and will be deleted in " in found(report)[0][2]


def test_readers_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's transaction is open in the sink. It may be ours unless we know of none."""
    monkeypatch.setattr("app.operate.audit.STABLE_SECONDS", 0.0)
    patient = Patient()
    patient.kafka.outputs[Partition("clean", 1)] = Watermarks(0, 3, 4)

    strange = patient.examine()
    unknown = patient.examine(patient.instruments()._replace(open_transactions=refuse))
    patient.open = [OpenTransaction(RAW, "ongoing", round(time.time() * 1000), 1, 1)]
    ours = patient.examine()

    assert (1, [("wrong", "clean-1@3")]) == (strange.code, [each[:2] for each in found(strange)])
    assert [("unknown", "transactions"), ("warns", "clean-1@3")] == [each[:2] for each in found(unknown)]
    assert (0, [("warns", "clean-1@3")]) == (ours.code, [each[:2] for each in found(ours)])


def test_a_sink_partition_without_a_leader_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not answer."""
    monkeypatch.setattr("app.operate.audit.STABLE_SECONDS", 0.0)
    patient = Patient()
    patient.kafka.sink_leaderless = {1}
    patient.kafka.outputs[Partition("clean", 1)] = Watermarks(0, 3, 4)

    assert not [each for each in found(patient.examine()) if each[1] == "clean-1@3"]


def test_a_store_that_keeps_nothing_shows_no_life() -> None:
    """Its offsets are in the service's own memory."""
    patient = Patient("offsets.store.name=none", "delivery.guarantee=at-least-once")
    patient.kafka.is_local = True  # type: ignore[attr-defined]  # as the store `none` is
    patient.works = lambda: None

    assert not [each for each in found(patient.examine()) if each[1] == "the group"]


def test_an_audit_says_what_it_could_not_judge() -> None:
    """And why."""
    patient = Patient()
    patient.kafka.compacted = {"clean"}
    del patient.lines[3]

    assert "8 of the newest records; not judged: 1 compacted" == notes(patient.examine())["audit"]


@pytest.mark.parametrize("topic", ["raw", "clean", "dead"])
def test_a_topic_whose_configuration_may_not_be_read(topic: str) -> None:
    """It may be compacted, or set the times itself: then each line would seem lost."""
    patient = Patient()
    patient.lines.clear()
    destination = patient.kafka.destination
    patient.kafka.destination = lambda name: replace(destination(name), known=name != topic)  # type: ignore[method-assign]

    (finding,) = patient.examine().findings

    assert ("unknown", "audit") == (finding.severity, *finding.where)
    assert finding.what.startswith(f"Winnow lacks DescribeConfigs on topic '{topic}'")
    assert finding.cure.endswith(f"--operation DescribeConfigs --topic {topic}")


def test_a_lost_line_is_found() -> None:
    """The command audits from the first sampled record on."""
    patient = Patient()
    del patient.lines[4]

    report = patient.examine()

    assert [("wrong", "raw-0@4", "the sink has no line of this record, nor a dead letter")] == found(report)
    assert re.fullmatch("winnow audit --set group.id=g .*--from 1970-01-01T00:00:00.000Z", report.findings[0].cure)


def test_a_lost_line_whose_dead_letter_cannot_have_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dead letters were emptied, but of older ones: they keep theirs for an hour."""
    patient = Patient()
    del patient.lines[4]
    patient.kafka.outputs[DEAD] = Watermarks(5, 5, 5)
    destination = patient.kafka.destination
    patient.kafka.destination = lambda name: replace(destination(name), retention=3_600_000)  # type: ignore[method-assign]

    for now, lost in ((60.0, [("wrong", "raw-0@4")]), (3_600.0, [])):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert lost == [each[:2] for each in found(patient.examine()) if each[1].startswith("raw-0@")]


def test_only_what_has_its_output_near_the_end_is_audited() -> None:
    """The times of the last records of the sink bound what is read of it."""
    patient = Patient()
    patient.kafka.outputs[CLEAN] = Watermarks(0, 2 * DEPTH, 2 * DEPTH)
    patient.first_lines.known[CLEAN] = 5_000
    asked: list[int] = []

    def offsets_at(partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int | None]:
        asked.append(milliseconds)
        return dict.fromkeys(partitions)

    patient.kafka.offsets_at = offsets_at  # type: ignore[method-assign]

    report = patient.examine()

    assert [5_000] == asked
    assert "no committed record is recent enough" == notes(report)["audit"]


def test_a_mirror_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compared with the offsets of the first look. With two clusters the source's group is one of the mirrors."""
    patient, behind, down = (
        Patient("sink.kafka.bootstrap.servers=there:1", "offsets.mirrors=[{name: x}]"),
        FakeKafka({}),
        0,
    )
    behind.committed[RAW] = CommittedOffset(2)
    opened = []

    def open_store(plugin: object, context: object) -> FakeOffsets:
        opened.append(plugin)
        if down:
            raise Unreachable("it is down", "start it")
        return FakeOffsets(behind)

    monkeypatch.setattr("app.operate.doctor.open_store", open_store)
    report = patient.examine()
    patient.kafka.committed[RAW] = CommittedOffset(END - 1)  # so that a first record is read
    without_lag = patient.examine(patient.instruments()._replace(first_records=Broken()))
    down = 1
    unknown = patient.examine()

    assert {"mirror source", "mirror x"} <= notes(report).keys()
    assert [("warns", "raw-0", f"mirror {name} has offset 2, but kafka has 9") for name in ("source", "x")] == found(
        report
    )
    assert {("warns", "raw-0", f"mirror {name} has offset 2, but kafka has 8") for name in ("source", "x")} <= {
        *found(without_lag)
    }
    assert ("unknown", "mirror source, mirror x", "it is down") in found(unknown)


def test_a_mirror_may_be_as_old_as_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running service writes it after the offset. Where the first look failed, the doctor looks, and then waits."""
    patient, mirror = Patient("offsets.mirrors=[{name: x}]"), FakeKafka({})
    patient.works = lambda: patient.kafka.save(RAW, END, "")
    monkeypatch.setattr("app.operate.doctor.open_store", lambda *_: FakeOffsets(mirror))
    patient.kafka.committed[RAW] = mirror.committed[RAW] = CommittedOffset(END - 1)
    mirror.pending[RAW] = None  # is no reason to wait
    first = patient.examine()
    patient.kafka.committed[RAW] = CommittedOffset(END - 1)
    looks = iter([{}, patient.kafka.committed])
    patient.works = lambda: mirror.committed.update(next(looks))
    mirror.committed.clear()
    without_lag = patient.examine(patient.instruments()._replace(first_records=Broken()))

    assert [] == found(first)
    assert not [each for each in found(without_lag) if each[2].startswith("mirror x")]


def test_a_partition_without_an_offset_needs_none_in_a_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before the first start."""
    patient = Patient("offsets.mirrors=[{name: x}]")
    patient.kafka.committed.clear()
    patient.works = lambda: None
    monkeypatch.setattr("app.operate.doctor.open_store", lambda *_: FakeOffsets(FakeKafka({})))

    assert "0 offsets" == notes(patient.examine())["mirror x"]


def test_samples_with_another_outcome() -> None:
    """They are counted, and not quoted, as they may be real lines."""
    patient = Patient("parser.samples=[{line: SECRET, output: SECRET}, {line: SECRET, output: y}]")

    report = patient.examine(patient.instruments()._replace(parse=lambda lines: parsed(lines, "y")))

    assert [("wrong", "parser.samples", "1 of 2 samples have another outcome than expected")] == found(report)
    assert "SECRET" not in str(report)


def test_a_secret_that_others_may_see() -> None:
    """Here an argument, which every user of the machine can read."""
    report = Patient("kafka.sasl.password=HUSH").examine()

    ((severity, where, what),) = found(report)
    assert (0, "warns", "the configuration") == (report.code, severity, where)
    assert what.startswith("secrets are stored where others may see them: kafka.sasl.password")
    assert "HUSH" not in str(report)


def test_without_transactions_none_is_sought() -> None:
    """At-least-once has no transactional id."""
    assert "transactions" not in notes(Patient("delivery.guarantee=at-least-once").examine())


def test_what_the_running_service_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its problems join the others. One that does not answer where the configuration says may be elsewhere."""
    patient = Patient("http.enabled=true")
    problem = {"cause": "stuck", "cure": "mend it", "topic": "raw", "partition": 0, "offset": 5}
    answers = {"phase": "running", "now": 0.0, "problems": [problem]}
    monkeypatch.setattr(served, "status", lambda url, group: answers if (url, group) == (HERE, "g") else None)
    told = patient.examine()
    monkeypatch.setattr(served, "status", partial(raising, Unreachable("no service answers", "see --status")))
    elsewhere = patient.examine()
    patient.url = "http://there:1"
    asked_for = patient.examine()

    assert (1, [("wrong", "raw-0@5", "stuck")]) == (told.code, found(told))
    assert answers == told.facts["status"]
    assert (0, [], "no service answers") == (elsewhere.code, found(elsewhere), notes(elsewhere)["status"])
    assert (4, [("unknown", "status", "no service answers")]) == (asked_for.code, found(asked_for))


HERE = "http://127.0.0.1:8090"


def test_cures_name_the_configuration(tmp_path: Path) -> None:
    """They can be copied."""
    file = tmp_path / "my own.yaml"
    topics = {"source.topics": "raw", "sink.topic": "clean", "dead.letters.topic": "dead"}
    file.write_text(json.dumps(topics | {"kafka": {"bootstrap.servers": "x:1"}, "http.enabled": False}))
    patient = Patient()
    patient.loaded = read(file, ["group.id=g"], {})
    patient.works = lambda: None

    cure = f"start the service: winnow run -c '{file}' --set group.id=g"
    assert [cure] == [each.cure for each in patient.examine().findings]


def test_a_code_for_each_severity() -> None:
    """Wrong beats unknown, and a warning is not an error, as in `winnow check`."""
    assert list(Severity) == list(CODES)
    assert [3, 1, 4, 0] == list(CODES.values())


def test_a_missing_sink_is_said() -> None:
    """The service would refuse to run."""
    patient = Patient()
    patient.kafka.sink_gone = NotUsable("topic 'clean' does not exist", "create it")

    assert 3 == patient.examine().code


def test_every_part_is_in_its_page() -> None:
    """In the order of the examination."""
    page = (ROOT / "docs/doctor.md").read_text()

    assert [*PARTS, "mirror NAME"] == re.findall(
        r"^\| `([a-z]+|mirror NAME)` \|", page.partition("## F")[0], re.MULTILINE
    )


VERSIONS = {"version": "0.3.0", "python": "3.11"}
SECRET, LINE = "HUSH-SECRET", "HUSH-LINE"
SECRETS = {
    "kafka": {
        "bootstrap.servers": "b:1",
        "sasl.password": SECRET,
        "sasl.username": f"{SECRET}-user",
        "sasl.oauthbearer.config": f"principal={SECRET}-1 secret={SECRET}-2",
        "sasl.pasword": f"{SECRET}-misspelt",
        "ssl.key.pem": f'"{SECRET}"\nsecond {SECRET}',
    },
    "spark": {"spark.driver.extraJavaOptions": f"-Dpassword={SECRET}-java", "spark.hadoop.key": f"{SECRET}-spark"},
    "offsets": {"mirrors": [{"name": "redis", "url": f"redis://u:{SECRET}%21url@r/0", "password": f"{SECRET}-redis"}]},
    "parser": {"samples": [{"line": LINE, "reason": "no_marker"}], "colour": f"{SECRET}-option"},
}
"""Every kind of place that a secret may be in."""


def opened(file: Path) -> dict[str, str]:
    """Return the files of an archive with their texts."""
    with tarfile.open(file) as archive:
        members = {each.name: archive.extractfile(each) for each in archive}
        return {name: content.read().decode() for name, content in members.items() if content}


def ill() -> Patient:
    """Return a service with changed and lost lines, and a sample that breaks the parser."""
    patient = Patient(f"parser.samples=[{{line: {LINE}, output: {LINE}}}]")
    patient.records = [each._replace(value=f"good {LINE}".encode()) for each in patient.records]
    patient.lines = [each._replace(value=LINE.encode()) for each in patient.lines[:4]]
    return patient


class TestBundle:
    """The archive for a bug report holds what the doctor saw, but no secret and no record."""

    def test_it_holds_what_the_doctor_saw(self, tmp_path: Path) -> None:
        """Only its owner can read it, even if it replaces a file that others could read."""
        patient, file = Patient(), tmp_path / "bundle.tar.gz"
        file.touch(0o644)
        report = patient.examine()

        write_bundle(file, patient.loaded, report, VERSIONS)

        found = opened(file)
        names = ["configuration.yaml", "report.json", "versions.json", "lag.json", "check.json"]
        assert [f"winnow-doctor/{each}" for each in names] == list(found)
        assert "sink:\n  topic: clean  # --set sink.topic\n" in found["winnow-doctor/configuration.yaml"]
        assert report.as_json() == json.loads(found["winnow-doctor/report.json"])
        assert VERSIONS == json.loads(found["winnow-doctor/versions.json"])
        assert 9 == json.loads(found["winnow-doctor/lag.json"])[0]["current_offset"]
        assert 0o600 == stat.S_IMODE(file.stat().st_mode)

    def test_no_secret_and_no_record_is_inside(self, tmp_path: Path) -> None:
        """Not even if an error, or the running service, quotes a secret."""
        file, written = tmp_path / "bundle.tar.gz", tmp_path / "winnow.yaml"
        written.write_text(json.dumps(GOOD | SECRETS))
        loaded = read(
            written,
            ["sink.kafka.bootstrap.servers=c:1", f"sink.kafka.sasl.password={SECRET}-set"],
            {"WINNOW_KAFKA__SSL_KEY_PASSWORD": f"{SECRET}-env"},
        )
        patient = ill()
        report = patient.examine()
        quoted = [
            SECRET,
            f"{SECRET}-2",
            f"{SECRET}-java",
            f"{SECRET}!url",
            f"{SECRET}-redis",
            f"{SECRET}-set",
            f"{SECRET}-env",
        ]
        facts = {**report.facts, "status": {"problems": [{"cause": f"refused: {each}"} for each in quoted]}}

        write_bundle(file, loaded, Examination("g", report.parts, facts), VERSIONS)

        text = "\n".join(opened(file).values())
        assert 7 == text.count("refused: ***")
        assert "HUSH" not in text
        assert "wrong" in text
        assert "raw-0@4" in text

    def test_a_file_that_cannot_be_written(self, tmp_path: Path) -> None:
        """It is wrong usage."""
        patient = Patient()

        with pytest.raises(ConfigError, match=r"--bundle: .*No such file or directory"):
            write_bundle(tmp_path / "no" / "bundle.tar.gz", patient.loaded, patient.examine(), VERSIONS)
