"""The image that docker/Dockerfile builds, with a read-only root and the broker of the Compose file."""

from __future__ import annotations

import pytest

from app import config
from app.embedded.broker import Cluster
from tests.containers.conftest import CONFIG, ROOT, Run
from tests.containers.engine import why_no_engine
from tests.independent import Written, by_partition, committed, ends, line, produce, read, sequence, values

PARTITIONS = 4
LINES = 1_000

if reason := why_no_engine():
    pytest.skip(reason, allow_module_level=True)  # one line in pytest's summary for all of these tests

pytestmark = pytest.mark.timeout(1_800)  # the first build fetches Spark


@pytest.fixture(scope="module")
def topics(kafka: Cluster) -> tuple[str, str, str]:
    """Create the topics that docker/winnow.yaml names."""
    used = config.load(ROOT / "docker/winnow.yaml", environ={})
    (source,) = used.source.topics
    kafka.create_topic(source, PARTITIONS)
    kafka.create_topic(used.sink.topic, PARTITIONS)
    kafka.create_topic(used.dead_letters.topic)
    return source, used.sink.topic, used.dead_letters.topic


def test_the_user_is_not_root(run: Run) -> None:
    """Programs in the image run with Spark's user id, not with 0."""
    ended = run("id", "-u")

    assert (0, "185\n") == (ended.code, ended.output), ended.errors


def test_the_root_is_read_only(run: Run) -> None:
    """The tests really confine the container: nothing can be written outside /tmp."""
    ended = run("bash", "-c", "touch /tmp/here && touch /opt/winnow/there")

    assert 0 != ended.code
    assert "Read-only file system" in ended.errors


def test_check_finds_nothing_wrong(run: Run, topics: tuple[str, str, str]) -> None:
    """`winnow check --connect` reaches the broker, finds the topics, and ends with 0; the backend is bulk."""
    ended = run("winnow", "check", "-c", CONFIG, "--connect")

    assert 0 == ended.code, ended.errors
    assert "# clients: bulk" in ended.output


def test_it_holds_the_client_of_every_store(run: Run) -> None:
    """Nothing can be installed in a container, so `winnow check` accepts each store as a mirror as it is."""
    mirrors = """[{name: redis, url: "redis://nowhere"}, {name: zookeeper, hosts: nowhere},
    {name: mysql, host: nowhere, user: u, password: p, database: d}, {name: hbase, host: nowhere},
    {name: files, url: "webhdfs://nowhere/o"}, {name: files, url: "s3://nowhere/o"}]"""

    ended = run("winnow", "check", "-c", CONFIG, "--set", f"offsets.mirrors={mirrors}")

    assert 0 == ended.code, ended.errors


def test_lines_are_cleansed_exactly_once(run: Run, kafka: Cluster, topics: tuple[str, str, str]) -> None:
    """4,000 good lines and 10 bad ones go through the image's `winnow run --until-end`: each comes out once, in order."""
    source, sink, dead = topics
    for partition in range(PARTITIONS):
        lines = [Written(line(n, partition), b"%d" % n, partition) for n in range(LINES)]
        produce(kafka.bootstrap, source, lines)
    bad = [b"rubbish %d" % n for n in range(10)]
    produce(kafka.bootstrap, source, [Written(value) for value in bad])

    ended = run("winnow", "run", "-c", CONFIG, "--until-end")

    assert 0 == ended.code, ended.errors
    assert sequence(dict.fromkeys(range(PARTITIONS), LINES)) == by_partition(read(kafka.bootstrap, sink))
    assert bad == values(read(kafka.bootstrap, dead))
    assert ends(kafka.bootstrap, source) == committed(kafka.bootstrap, "idc-cleansing", source)
