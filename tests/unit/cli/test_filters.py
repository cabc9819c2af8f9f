"""`winnow filters`, and what `winnow check` says of filters."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from app.cli import main
from app.model import CommittedOffset, Partition, Watermarks
from app.offsets.metadata import Counts, OffsetMetadata
from app.operate.lag import PartitionLag
from tests.unit.config.good import GOOD


def file_of(folder: Path, *filters: dict[str, Any]) -> str:
    file = folder / "winnow.yaml"
    file.write_text(yaml.safe_dump(GOOD | {"filter": list(filters)}))
    return str(file)


def problems(folder: Path, *filters: dict[str, Any]) -> list[str]:
    found = CliRunner().invoke(main, ["check", "-c", file_of(folder, *filters)]).stderr
    return [line.removeprefix("configuration: ") for line in found.splitlines()]


DROP = {"drop": {"field": "url", "matches": "^x"}, "limit": 0.5}


def test_each_wrong_filter_is_named_with_its_line(tmp_path: Path) -> None:
    """All at once; a field or a check has its nearest name."""
    wrong = {"drop": {"field": "ulr", "matches": "^x"}}, {"keep": {"field": "url", "match": "^x"}}

    assert [
        "filter[0]: the parser's lines have no field 'ulr'; did you mean 'url'? (winnow.yaml:4)",
        "filter[1]: no check 'match' for a filter; did you mean 'matches'? (winnow.yaml:7)",
    ] == [each.replace(f"{tmp_path}/", "") for each in problems(tmp_path, *wrong)]


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ([DROP, DROP], "filter: 2 filters are called drop-url: give each its own name"),
        ([DROP | {"keep": {"field": "url", "matches": "x"}}], "filter[0] each must have either drop or keep"),
        ([{"limit": 0.5}], "filter[0] each must have either drop or keep"),
        ([DROP | {"limit": 50}], "filter[0].limit must be"),
        ([DROP | {"name": "A b"}], "filter[0].name must be"),
        ([DROP | {"name": str(number)} for number in range(17)], "filter must"),
    ],
)
def test_what_is_no_filter(tmp_path: Path, filters: list[dict[str, Any]], said: str) -> None:
    (problem,) = problems(tmp_path, *filters)

    assert said in problem


def test_the_counts_of_each_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All partitions together, with the share and the limit; a filter of earlier has no rule."""
    metadata = str(OffsetMetadata("id", 0, Counts(200, 150, filtered={"drop-url": 30, "old": 20})))
    found = [
        PartitionLag(Partition("raw", number), CommittedOffset(200, metadata), Watermarks(0, 200, 200))
        for number in (0, 1)
    ]
    module = sys.modules["app.cli.filters"]
    monkeypatch.setattr(module, "clients", lambda _settings: None)
    monkeypatch.setattr(module, "offsets_of", lambda _settings, _clients: found)
    command = ["filters", "-c", file_of(tmp_path, DROP)]

    table = CliRunner().invoke(main, command).stdout
    value = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)

    assert ["drop-url", "60", "15.0", "50.0", "drop", "url", "matches:", "^x"] == table.splitlines()[1].split()
    assert table.splitlines()[-1] == "group idc-cleansing: filters dropped 100 of 400 records"
    first, second = value["filters"]
    assert {
        "filter": "drop-url",
        "rule": "drop url matches: ^x",
        "dropped": 60,
        "percent": 15.0,
        "limit": 50.0,
    } == first
    assert {"filter": "old", "rule": None, "dropped": 40, "percent": 10.0, "limit": None} == second
