"""Access log lines and Flume events with their outcomes: ours in `tests/data`, and recorded ones if available."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

WRITTEN = Path(__file__).parent / "data"
RECORDED = Path(__file__).parents[2] / "shared" / "data"
SOURCES = ["written", "recorded"] if RECORDED.exists() else ["written"]
"""The sources of test lines: this repository's for everybody, and the recorded ones if they exist."""

Sample = tuple[list[bytes], list[str]]
"""Access log lines and the expected outcome of each: its cleansed line, or its reason."""


def access_log(source: str) -> Sample:
    """Return the lines of a source with their outcomes."""
    return _recorded() if source == "recorded" else _written()


def _written() -> Sample:
    rows = map(json.loads, (WRITTEN / "idc-access-log.expected.jsonl").read_bytes().splitlines())
    lines = (WRITTEN / "idc-access-log.txt").read_bytes().split(b"\n")[:-1]
    return lines, [row["value"] if "value" in row else row["reason"] for row in rows]


def _recorded() -> Sample:
    """Return recorded lines, which are all valid and contain nothing to escape."""
    lines = (RECORDED / "idc-access-log.sample").read_bytes().splitlines()
    expected = []
    for line in lines:
        field = re.findall(r"<<<!>>>(.*?)<<<!>>>(?:,|$)", line.decode())
        expected.append(f"{field[1]}|{field[2]}|{field[3]}:{field[5]}|{field[4]}:{field[6]}|{field[13]}")
    return lines, expected


def flume_events(source: str) -> list[tuple[bytes, bytes]]:
    """Return events as Flume writes them, each with its body."""
    folder = RECORDED if source == "recorded" else WRITTEN
    rows = (folder / "flume-avro-events.txt").read_text(encoding="utf-8").splitlines()
    values = [bytes.fromhex(row.removeprefix("hex ")) for row in rows if row.startswith("hex ")]
    bodies = [ast.literal_eval(row.removeprefix("dec "))["body"] for row in rows if row.startswith("dec ")]
    return list(zip(values, bodies, strict=True))
