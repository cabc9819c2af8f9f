"""The lines and events in tests/data."""

from __future__ import annotations

import json

import pytest

from parsers.idc_access_log import IdcAccessLog
from tests.data import make


@pytest.mark.parametrize("name", sorted(make.files()))
def test_the_files_are_those_that_the_script_writes(name: str) -> None:
    """No file was edited by hand: `python tests/data/make.py` writes the same files."""
    assert make.files()[name] == (make.FOLDER / name).read_bytes()


def test_every_reason_occurs() -> None:
    """There is a line for each reason of the access log parser."""
    rows = map(json.loads, make.files()["idc-access-log.expected.jsonl"].splitlines())

    assert {*IdcAccessLog().reasons} == {row["reason"] for row in rows if "reason" in row}
