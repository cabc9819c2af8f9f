"""Lines that name their source record, on a real Kafka, and audits that use this even after the sink has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.embedded.broker import Cluster
from app.kafka.backend import Backend
from app.model import Guarantee
from tests.conftest import Topics
from tests.independent import Record, Written, cleanse, grow, line, produce, read
from tests.integration.audits import BEGAN, audit, records
from tests.integration.in_process import run
from tests.integration.service import Event, settings
from tests.integration.tasks import BOTH_BACKENDS, BOTH_GUARANTEES, make_pipeline
from tests.support.configuration import file_of

HEADER = "winnow.source"


@BOTH_GUARANTEES
@BOTH_BACKENDS
def test_each_line_names_its_record(broker: Cluster, topics: Topics, guarantee: Guarantee, backend: Backend) -> None:
    """With `lineage.headers` each line, even a transaction's first, names its topic, partition and offset."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, source=3, sink=2, lineage=True)
    pipeline.backend = backend
    raw = [Written(line(n) if n % 5 else b"rubbish", partition=n % 3) for n in range(600)]
    produce(broker.bootstrap, pipeline.source, raw)
    pipeline.run()
    named = pipeline.cleansed()
    pipeline.changes["lineage"] = False
    produce(broker.bootstrap, pipeline.source, [Written(line(1_000))])
    pipeline.run()

    sources = {
        f"{pipeline.source}-{each.partition}@{each.offset}": each for each in read(broker.bootstrap, pipeline.source)
    }
    assert 480 == len(named) == len({name_of(each) for each in named})
    for each in named:
        source = sources[name_of(each)]
        assert (cleanse(source.value or b""), source.partition % 2) == (each.value, each.partition)
    assert 1 == sum(HEADER not in dict(each.headers) for each in pipeline.cleansed())


def name_of(each: Record) -> str:
    ((_, text),) = [header for header in each.headers if header[0] == HEADER]
    return (text or b"").decode()


@pytest.fixture
def written(broker: Cluster, topics: Topics) -> Event:
    """Return a configuration with lineage headers."""
    source, sink, dead = topics("raw", 3), topics("clean", 2), topics("dead", 2)
    return settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead, lineage={"headers": True})


def test_an_audit_after_the_sink_has_grown(broker: Cluster, written: Event, tmp_path: Path) -> None:
    """After the sink has grown, an audit still matches lines by their headers, whatever their partition."""
    source, sink = written["source"]["topics"][0], written["sink"]["topic"]
    dead = written["dead.letters"]["topic"]
    produce(broker.bootstrap, source, records(0, 300))
    assert 0 == run(written)[0]
    grow(broker.bootstrap, sink, 3)
    grow(broker.bootstrap, dead, 5)
    produce(broker.bootstrap, source, records(300, 600))
    assert 0 == run(written)[0]
    file = file_of(written, tmp_path)

    code, found = audit(file)
    without = audit(file, "--from", str(BEGAN), "--set", "lineage.headers=false")

    assert (0, 600, []) == (code, found["records"], found["findings"])
    assert 1 == without[0]
    assert 0 < without[1]["changed"]


def test_an_audit_of_a_sink_that_sets_the_time(broker: Cluster, topics: Topics, written: Event, tmp_path: Path) -> None:
    """If the sink sets timestamps, an audit without headers refuses and says why; with headers it finds the faults."""
    sink = written["sink"]["topic"] = topics("late", 2, {"message.timestamp.type": "LogAppendTime"})
    produce(broker.bootstrap, written["source"]["topics"][0], records(0, 300))
    assert 0 == run(written)[0]
    file = file_of(written, tmp_path)

    refused = audit(file, "--from", str(BEGAN), "--set", "lineage.headers=false")
    good = audit(file)
    first, second, *_ = read(broker.bootstrap, sink)
    produce(broker.bootstrap, sink, [Written(first.value, first.key, first.partition, headers=first.headers)])
    code, found = audit(file)

    assert 3 == refused[0]
    assert (
        "has message.timestamp.type LogAppendTime, so its lines lack their records' timestamps" in refused[1]["stderr"]
    )
    assert (0, [], 0) == (good[0], good[1]["findings"], good[1]["known_by_text"])
    (doubled,) = found["findings"]
    assert (1, "doubled") == (code, doubled["kind"])
    assert name_of(first) == "{topic}-{partition}@{offset}".format(**doubled)
    assert name_of(second) != name_of(first)
