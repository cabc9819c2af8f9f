"""The reader in docs/integrations.md, with an aborted transaction in the sink."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from app.embedded.broker import Cluster
from app.kafka.backend import best_backend
from tests.conftest import Topics
from tests.independent import cleansed
from tests.integration.tasks import make_pipeline
from tests.integration.writers import deliver, make_lines, writing
from tests.support.waiting import PATIENCE

LAST = 9
"""The number of the line behind which nothing comes."""
PAGE = Path(__file__).parents[2] / "docs/integrations.md"


def test_the_reader_in_the_page(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """The reader prints each line once. With read_uncommitted it also prints aborted lines, hence twice."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    for numbers, commits in ((range(3), False), (range(3), True), ([LAST], True)):
        with writing(pipeline, best_backend({})) as writer:
            writer.open()
            writer.send(make_lines(*map(cleansed, numbers)))
            deliver(writer)
            if commits:
                writer.commit(max(numbers), "")
    (program,) = re.findall(r'```python\n("""Prints cleansed lines.*?)```', PAGE.read_text(), re.DOTALL)
    file = tmp_path / "reader.py"
    # It ends when nothing has come for 10 seconds. On a busy machine that may be so before it has joined its group.
    patient = program.replace("poll(10)", f"poll({PATIENCE})")
    file.write_text(patient.replace("localhost:9092", broker.bootstrap).replace("clean-logs", pipeline.sink))

    printed = {level: read_by(file, level) for level in ("read_committed", "read_uncommitted")}

    *urls, last = [f"http://x.cn/0/{n}" for n in (0, 1, 2, LAST)]
    assert [*urls, last] == printed["read_committed"]
    assert [*urls, *urls, last] == printed["read_uncommitted"]


def read_by(program: Path, isolation_level: str) -> list[str]:
    """Run a copy of the reader in its own group until it prints the last url, and return those that it has printed."""
    copy = program.with_name(f"{isolation_level}.py")
    copy.write_text(program.read_text().replace("my-app", f"{program.parent.name}-{isolation_level}"))
    printed: list[str] = []
    with subprocess.Popen([sys.executable, "-u", copy, isolation_level], stdout=subprocess.PIPE, text=True) as reader:
        for line in reader.stdout or ():
            printed.append(line.split()[-1])
            if printed[-1].endswith(f"/{LAST}"):
                reader.kill()
    return printed
