"""The commands that docs/operating.md and docs/audit-and-replay.md show, on a real Kafka."""

from __future__ import annotations

import json
import re
import shlex
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from click.testing import CliRunner

from app.cli import main
from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, line, produce
from tests.integration.in_process import run
from tests.integration.service import settings
from tests.support.docs import ROOT, commands

PAGES = ("docs/operating.md", "docs/audit-and-replay.md")
ELSEWHERE = {
    "run": "test_getting_started",
    "top": "test_operate_top",
    "tap": "test_operate_tap",
    "parse": "test_docs",
    "offsets history": "test_offset_stores",
}
"""Commands that run until somebody ends them, or need something other than Kafka, with the tests that run them."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z")
HEADS = re.compile(r"[A-Z%/-]+( +[A-Z%/-]+)+")
"""The heads of a table's columns."""


def test_each_command_prints_the_table_that_its_page_shows(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Each succeeds, or finds a fault, with the columns of the page: a person may copy it, and a sample stays true."""
    names = {name: topics(name.replace(".", "-"), 2) for name in ("raw-logs", "clean-logs", "raw-logs.dlq", "trial")}
    broker.create_topic(f"{names['trial']}.dlq", 1)
    config = settings(
        broker.bootstrap,
        group=names["clean-logs"],
        sources=[names["raw-logs"]],
        sink=names["clean-logs"],
        dead=names["raw-logs.dlq"],
    )
    (tmp_path / "winnow.yaml").write_text(json.dumps(config))
    (tmp_path / "volume/offsets").mkdir(parents=True)
    now = datetime.now(UTC)
    first = round(time.time() * 1000) - 60_000
    values = [line(n) if n % 5 else b"rubbish" for n in range(100)]
    produce(
        broker.bootstrap, names["raw-logs"], [Written(value, None, n % 2, first + n) for n, value in enumerate(values)]
    )
    assert 0 == run(config)[0]

    told = [each for page in PAGES for each in commands((ROOT / page).read_text()) if not is_run_elsewhere(each[0])]

    assert len(told) > 15
    for command, shown in told:
        arguments = adapted(command, names, tmp_path, now)
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code in (0, 1), f"{command}\n{done.output}"
        if HEADS.fullmatch(heads := shown.partition("\n")[0].strip()):
            printed = [row.split() for row in done.output.splitlines()]
            nothing = len(printed) == 1  # there are no rows, so only the last line, such as `0 open transactions`
            assert nothing or heads.split() in printed, f"{command}\n{done.output}"


def is_run_elsewhere(command: str) -> bool:
    words = command.split()
    return words[1] in ELSEWHERE or " ".join(words[1:3]) in ELSEWHERE


def adapted(command: str, names: dict[str, str], folder: Path, now: datetime) -> list[str]:
    """Return the arguments of a shown command for these topics, this folder, and records of the last minutes."""
    ago = (now - timedelta(hours=1)).isoformat()
    text = re.sub(rf"(--to|--until) {TIME.pattern}", rf"\1 {now.isoformat()}", command)
    text = TIME.sub(ago, text)
    text = text.replace("winnow.yaml", str(folder / "winnow.yaml")).replace("file:///srv", f"file://{folder}")
    text = re.sub(r"\b\d@\d+", "0@0", text)
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}\b", names[name], text)
    return shlex.split(text)[1:]
