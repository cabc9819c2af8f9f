"""`winnow dlq` on a real Kafka, with dead letters written by the service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from app.cli import main
from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, committed, line, produce
from tests.integration.in_process import run
from tests.integration.service import settings
from tests.support.configuration import file_of

BEGAN = 1_760_000_000_000


def test_the_dead_letters(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """It lists the newest dead letters, shows one in full, and counts them by reason, regardless of control records."""
    source, sink, dead = topics("raw", 2), topics("clean"), topics("dead", 2)
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    file = file_of(config, tmp_path)
    for n in range(10):
        value = (b"rubbish", b"", line(n))[n % 3]
        produce(broker.bootstrap, source, [Written(value, b"key", n % 2, BEGAN + n * 1_000, [("own", b"1")])])
    assert 0 == run(config)[0]
    before = committed(broker.bootstrap, sink, source)

    def dlq(*arguments: str) -> tuple[int, dict[str, Any]]:
        done = CliRunner().invoke(main, ["dlq", arguments[0], "-c", str(file), "--json", *arguments[1:]])
        return done.exit_code, json.loads(done.stdout or "{}")

    _, every = dlq("ls")
    _, newest = dlq("ls", "--limit", "2")
    _, empty = dlq("ls", "--reason", "empty", "--since", "2025-10-09T08:53:24Z")
    _, counts = dlq("stats")
    last = newest["dead_letters"][-1]
    code, letter = dlq("show", f"{last['partition']}@{last['offset']}")

    assert [0, 1, 3, 4, 6, 7, 9] == [round((each["timestamp"] - BEGAN) / 1_000) for each in every["dead_letters"]]
    assert every["dead_letters"][-2:] == newest["dead_letters"]
    assert [4, 7] == [round((each["timestamp"] - BEGAN) / 1_000) for each in empty["dead_letters"]]
    assert (7, {"no_marker": 4, "empty": 3}, {source: 7}) == (
        counts["total"],
        counts["reasons"],
        counts["source_topics"],
    )
    assert (0, "key", "rubbish", source, 1) == (
        code,
        letter["key"],
        letter["value"],
        letter["source_topic"],
        letter["source_partition"],
    )
    assert ["own", "1"] in letter["headers"]
    for nowhere in ("0@1000000", "7@0", f"{last['partition']}@{last['offset'] + 1}"):
        assert 1 == dlq("show", nowhere)[0], nowhere
    assert before == committed(broker.bootstrap, sink, source)
