"""What `winnow doctor` prints, and its exit codes."""

from __future__ import annotations

import json
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.operate.doctor import Instruments
from app.runtime import Timings
from tests.fakes.patients import Patient
from tests.support.configuration import file_of
from tests.unit.config.good import GOOD


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Patient:
    """Return the service that the command examines, in a moment."""
    found = Patient()

    def quick(_: object) -> Instruments:
        instruments = found.instruments()
        return instruments._replace(clients=replace(instruments.clients, timings=Timings(sign_of_life=0.0)))

    module = sys.modules["app.cli.doctor"]  # its name in the package is the command's
    monkeypatch.setattr(module, "_instruments", quick)
    return found


def doctor(tmp_path: Path, *arguments: str) -> Result:
    names = {"source": {"topics": ["raw"]}, "sink": {"topic": "clean"}, "dead.letters": {"topic": "dead"}}
    file = file_of(GOOD | names | {"commit.interval": "10ms", "http": {"enabled": False}}, tmp_path)
    return CliRunner().invoke(main, ["doctor", "-c", str(file), *arguments])


def test_a_person_reads_the_worst_first(patient: Patient, tmp_path: Path) -> None:
    """A line for each finding, its command below it, then what the parts saw."""
    for line in range(5):
        del patient.lines[line]

    done = doctor(tmp_path)

    first, command, warning, *rest = done.stdout.splitlines()
    assert 1 == done.exit_code
    assert (
        "wrong    raw-0@0, raw-0@2, raw-0@4 and 2 more: the sink has no line of this record, nor a dead letter" == first
    )
    assert command.startswith("         winnow audit -c ")
    assert "warns    the group: no service works: no offset was committed within 0 s" == warning
    assert "ok       lag: 1 partitions, lag 0, at most 0.0 s" in rest
    assert "found    audit: 9 of the newest records" in rest
    assert "group idc-cleansing: 2 findings" == rest[-1]


@pytest.mark.usefixtures("patient")
def test_a_program_reads_json(tmp_path: Path) -> None:
    """A warning exits with 0, and nothing else is on stdout."""
    done = doctor(tmp_path, "--json")

    assert (0, ["warns"]) == (done.exit_code, [each["severity"] for each in json.loads(done.stdout)["findings"]])


@pytest.mark.usefixtures("patient")
def test_the_archive_is_written_too(tmp_path: Path) -> None:
    """With the versions that run; the report is printed as without it."""
    bundle = tmp_path / "bundle.tar.gz"

    done = doctor(tmp_path, "--bundle", str(bundle))

    assert (0, "group idc-cleansing: 1 finding") == (done.exit_code, done.stdout.splitlines()[-1])
    assert f"{bundle} holds the report; look at it before you send it\n" == done.stderr
    with tarfile.open(bundle) as archive:
        versions = archive.extractfile("winnow-doctor/versions.json")
        assert versions
        assert {"version", "python", "librdkafka", "pyarrow", "platform"} <= json.load(versions).keys()


@pytest.mark.usefixtures("patient")
def test_an_archive_that_cannot_be_written(tmp_path: Path) -> None:
    """The report is printed all the same."""
    done = doctor(tmp_path, "--bundle", str(tmp_path / "no" / "bundle.tar.gz"))

    assert 2 == done.exit_code
    assert "finding" in done.stdout
    assert "configuration: --bundle: " in done.stderr
