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

PAGE = Path(__file__).parents[2] / "docs/integrations.md"


def test_the_reader_in_the_page(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """The reader prints each line once. With read_uncommitted it also prints aborted lines, hence twice."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    for commits in (False, True):
        with writing(pipeline, best_backend({})) as writer:
            writer.open()
            writer.send(make_lines(*map(cleansed, range(3))))
            deliver(writer)
            if commits:
                writer.commit(3, "")
    (program,) = re.findall(r'```python\n("""Prints cleansed lines.*?)```', PAGE.read_text(), re.DOTALL)
    file = tmp_path / "reader.py"
    file.write_text(program.replace("localhost:9092", broker.bootstrap).replace("clean-logs", pipeline.sink))

    printed = {level: read_by(file, level) for level in ("read_committed", "read_uncommitted")}

    urls = [f"http://x.cn/0/{n}" for n in range(3)]
    assert urls == printed["read_committed"]
    assert urls + urls == printed["read_uncommitted"]


def read_by(program: Path, isolation_level: str) -> list[str]:
    """Run a copy of the reader in its own group, and return the urls that it prints."""
    copy = program.with_name(f"{isolation_level}.py")
    copy.write_text(program.read_text().replace("my-app", f"{program.parent.name}-{isolation_level}"))
    done = subprocess.run([sys.executable, copy, isolation_level], capture_output=True, text=True, check=True)
    return [line.split()[-1] for line in done.stdout.splitlines()]
