"""Filters on a real Kafka: what they drop is nowhere, and every account of the records still balances."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from app.cli import main
from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, cleansed, line, produce, read, values
from tests.integration.audits import BEGAN, audit
from tests.integration.in_process import run
from tests.integration.service import settings
from tests.support.configuration import file_of


def test_what_filters_drop(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """In = out + dead letters + filtered, in the audit and by rule; without the filters, an audit misses their lines."""
    source, sink, dead = topics("raw", 3), topics("clean", 2), topics("dead", 2)
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    config["filter"] = [
        {"name": "sevens", "drop": {"field": "url", "matches": "7$"}, "limit": 0.5},
        {"keep": {"field": "houseid", "one-of": [238]}},
    ]
    file = file_of(config, tmp_path)
    records = [Written(line(n, n % 3) if n % 5 else b"rubbish", b"k", n % 3, BEGAN + n) for n in range(300)]
    produce(broker.bootstrap, source, records)
    assert 0 == run(config)[0]

    code, found = audit(file)
    counted = json.loads(CliRunner().invoke(main, ["filters", "-c", str(file), "--json"]).stdout.splitlines()[-1])
    unfiltered = audit(file, "--from", str(BEGAN), "--set", "filter=[]")

    kept = [cleansed(n, n % 3) for n in range(300) if n % 5 and n % 10 != 7]
    assert sorted(kept) == sorted(filter(None, values(read(broker.bootstrap, sink))))
    assert 60 == len(read(broker.bootstrap, dead))
    assert (0, 300, 30, []) == (code, found["records"], found["filtered"], found["findings"])
    assert [("sevens", 30, 10.0, 50.0), ("keep-houseid", 0, 0.0, None)] == [
        (each["filter"], each["dropped"], each["percent"], each["limit"]) for each in counted["filters"]
    ]
    assert (1, 30) == (unfiltered[0], unfiltered[1]["lost"])
