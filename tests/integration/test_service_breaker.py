"""A partition of invalid lines with a circuit breaker for dead letters, from configuration to log and status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli import main
from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, committed, line, produce, read, values
from tests.integration.service import Winnow, settings
from tests.integration.status_page import ask
from tests.support.waiting import until

pytestmark = pytest.mark.integration

GOOD, RUBBISH, MINIMUM = 1_000, 9_000, 100


def test_rubbish_waits_for_a_person(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """The breaker blocks only this partition, with the reason. Without it the lines become dead letters."""
    source, sink, dead = topics("raw", 2), topics("clean", 2), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    config["dead.letters"]["breaker"] = {"ratio": 0.5, "minimum": MINIMUM}
    good = [Written(line(n, each), partition=each) for n in range(GOOD) for each in (0, 1)]
    produce(broker.bootstrap, source, [*good, *[Written(b"rubbish", partition=0)] * RUBBISH])

    with Winnow(config, tmp_path) as service:
        url = service.wait_for("status_page_up")["url"]
        blocked = service.wait_for("partition_blocked")
        produce(broker.bootstrap, source, [Written(line(GOOD, 1), partition=1)])
        until(lambda: committed(broker.bootstrap, sink, source).get((source, 1)) == GOOD + 1, "the other partition")
        file = tmp_path / "command.yaml"
        file.write_text(json.dumps(config))
        lag, check = (
            CliRunner().invoke(main, [*words, "-c", str(file)]) for words in (["lag"], ["check", "--connect"])
        )
        shown = json.loads(ask(f"{url}api/status")[1])["partitions"]
        assert 0 == service.stop()
        assert {(0, blocked["error"])} == {
            (each["partition"], each["error"]) for each in service.logged("partition_blocked")
        }

    offset = committed(broker.bootstrap, sink, source)[source, 0]
    assert offset < GOOD + RUBBISH
    assert offset == len(values(read(broker.bootstrap, sink), 0)) + len(read(broker.bootstrap, dead))
    assert "dead.letters.breaker.ratio allows 50.0%" in blocked["error"]
    assert (1, 1) == (lag.exit_code, check.exit_code)
    assert "dead.letters.breaker.ratio allows 50.0%" in lag.stdout
    assert f"blocked  {blocked['error']}".replace("winnow.yaml", str(file)) in check.stdout
    assert ["blocked"] == [each["state"] for each in shown if each["partition"] == 0]

    del config["dead.letters"]["breaker"]
    with Winnow(config, tmp_path, "--until-end") as service:
        assert 0 == service.code()

    assert (GOOD, RUBBISH) == (len(values(read(broker.bootstrap, sink), 0)), len(read(broker.bootstrap, dead)))
