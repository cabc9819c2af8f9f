"""The archive for a bug report holds what the doctor saw, but no secret and no record."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest

from app.config import read
from app.errors import ConfigError
from app.operate.bundle import write
from app.operate.doctor import Examination
from tests.fakes.patients import Patient
from tests.unit.config.good import GOOD

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


def test_it_holds_what_the_doctor_saw(tmp_path: Path) -> None:
    """Only its owner can read it, even if it replaces a file that others could read."""
    patient, file = Patient(), tmp_path / "bundle.tar.gz"
    file.touch(0o644)
    report = patient.examine()

    write(file, patient.loaded, report, VERSIONS)

    found = opened(file)
    names = ["configuration.yaml", "report.json", "versions.json", "lag.json", "check.json"]
    assert [f"winnow-doctor/{each}" for each in names] == list(found)
    assert "sink:\n  topic: clean  # --set sink.topic\n" in found["winnow-doctor/configuration.yaml"]
    assert report.as_json() == json.loads(found["winnow-doctor/report.json"])
    assert VERSIONS == json.loads(found["winnow-doctor/versions.json"])
    assert 9 == json.loads(found["winnow-doctor/lag.json"])[0]["current_offset"]
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


def test_no_secret_and_no_record_is_inside(tmp_path: Path) -> None:
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

    write(file, loaded, Examination("g", report.parts, facts), VERSIONS)

    text = "\n".join(opened(file).values())
    assert 7 == text.count("refused: ***")
    assert "HUSH" not in text
    assert "wrong" in text
    assert "raw-0@4" in text


def ill() -> Patient:
    """Return a service with changed and lost lines, and a sample that breaks the parser."""
    patient = Patient(f"parser.samples=[{{line: {LINE}, output: {LINE}}}]")
    patient.records = [each._replace(value=f"good {LINE}".encode()) for each in patient.records]
    patient.lines = [each._replace(value=LINE.encode()) for each in patient.lines[:4]]
    return patient


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """It is wrong usage."""
    patient = Patient()

    with pytest.raises(ConfigError, match=r"--bundle: .*No such file or directory"):
        write(tmp_path / "no" / "bundle.tar.gz", patient.loaded, patient.examine(), VERSIONS)
