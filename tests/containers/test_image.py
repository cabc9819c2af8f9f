"""The image of docker/Dockerfile: what it contains, and what runs in it on a read-only root without capabilities."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path, PurePath

import pytest

from app import __version__, config
from tests.containers.contract import CONFIG, ROOT, Image
from tests.independent import Written, by_partition, committed, ends, line, produce, read, sequence, values
from tests.support.waiting import until

PARTITIONS = 4
LINES = 1_000
SITE_PACKAGES = "opt/venv/lib/python3.11/site-packages/"
ENTRYPOINT = "/opt/winnow/entrypoint.sh"
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:9",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "256m",
    "SPARK_APPLICATION_ID": "spark-0123",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "winnow-exec-1",
}
# Succeeds while another attempt than the first one has a JVM. Before that the command may not handle signals yet.
SECOND_JVM = """
for process in /proc/[0-9]*; do
    grep -q java $process/comm && grep -qz '^DRIVER_ATTEMPT=[1-9]' $process/environ && exit
done
exit 1
"""

pytestmark = pytest.mark.timeout(4_500)  # the first test builds the image, which downloads Spark


class ImageTopics:
    """The topics of docker/winnow.yaml, and the options that point its image to the tests' broker."""

    def __init__(self, image: Image) -> None:
        used = config.load(ROOT / "docker/winnow.yaml", environ={})
        (self.source,) = used.source.topics
        self.sink, self.dead, self.group = used.sink.topic, used.dead_letters.topic, used.group_id
        self.kafka = image.kafka
        self.options = ("-c", CONFIG, "--set", f"kafka.bootstrap.servers={image.bootstrap}")
        for topic, partitions in ((self.source, PARTITIONS), (self.sink, PARTITIONS), (self.dead, 1)):
            self.kafka.create_topic(topic, partitions)
        self._written = 0
        assert {} == committed(self.kafka.bootstrap, self.group, self.source)  # waits for the coordinator

    def write(self, lines: int) -> None:
        """Produce this many more lines to each partition."""
        begin, self._written = self._written, self._written + lines
        for partition in range(PARTITIONS):
            records = [Written(line(n, partition), b"%d" % n, partition) for n in range(begin, self._written)]
            produce(self.kafka.bootstrap, self.source, records)

    @property
    def all_is_done(self) -> bool:
        """Whether the group has committed the ends of all partitions."""
        return committed(self.kafka.bootstrap, self.group, self.source) == ends(self.kafka.bootstrap, self.source)

    @property
    def each_came_once(self) -> bool:
        """Whether the sink has each line once, in the order of its partition."""
        expected = sequence(dict.fromkeys(range(PARTITIONS), self._written))
        return expected == by_partition(read(self.kafka.bootstrap, self.sink))


@pytest.fixture(scope="module")
def topics(image: Image) -> ImageTopics:
    """Create the topics."""
    return ImageTopics(image)


def test_the_user_is_not_root(image: Image) -> None:
    """Programs in the image run as Spark's user and gain no rights through capabilities or setuid programs."""
    status = image.run("grep", "-E", "^(Uid|Gid|Cap|NoNewPrivs)", "/proc/self/status").output.splitlines()
    found = {name: set(numbers.split()) for name, numbers in (row.split(":") for row in status)}

    assert {"185"} == found.pop("Uid") == found.pop("Gid")
    assert {"1"} == found.pop("NoNewPrivs")
    assert {"0" * 16} == set.union(*found.values())
    assert "" == image.run("find", "/", "-xdev", "-perm", "/6000", "-type", "f").output


def test_the_root_is_read_only(image: Image) -> None:
    """The tests really confine the container: only /tmp is writable."""
    ended = image.run("bash", "-c", "touch /tmp/here && touch /opt/winnow/there")

    assert 0 != ended.code
    assert "Read-only file system" in ended.errors


def test_it_tells_what_it_is(image: Image) -> None:
    """The OCI labels name the program, its version and the revision it was built from."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in image.config["Labels"].items()}

    assert "Winnow" == labels["title"]
    assert labels["description"]
    assert (__version__, project["license"]) == (labels["version"], labels["licenses"])
    assert "tested" == labels["revision"]


@pytest.fixture(scope="module")
def files(image: Image) -> list[str]:
    """List all files and folders of the image that its user can see, without the leading slash."""
    listed = image.run("find", "/", "-xdev", "-mindepth", "1", "-printf", r"%P\n").output.splitlines()
    assert "opt/winnow/main.py" in listed
    return listed


def test_it_cannot_build_or_install(files: list[str]) -> None:
    """The image contains no compiler, no pip, no Debian package lists, no manuals and no caches."""
    programs = {Path(each).name for each in files if re.match(r"(usr/|opt/\w+/)?(local/)?s?bin/", each)}
    leftovers = r"var/lib/apt/lists/.|var/cache/.+\.(bin|deb)|usr/share/man/.|root/.cache|.*site-packages/(pip|setuptools|wheel|hatchling)\b"

    assert {"python3", "winnow", "tini"} <= programs
    assert not {"gcc", "cc", "g++", "make", "ld", "javac", "pip", "pip3", "wheel", "spark-shell", "beeline"} & programs
    assert not [each for each in files if re.match(leftovers, each) or each.endswith(".whl")]


def is_named_by(pattern: str, file: str) -> bool:
    """Return whether a shell would expand `pattern` to `file`."""
    return file.count("/") == pattern.count("/") and PurePath(file).match(pattern)


def test_nothing_unneeded_is_left(files: list[str]) -> None:
    """The image contains nothing listed in docker/unneeded.txt, but all that Spark on Kubernetes and its log need."""
    rows = (ROOT / "docker/unneeded.txt").read_text().splitlines()
    unneeded = [row for row in rows if row and not row.startswith("#")]
    packages = [each.removeprefix(SITE_PACKAGES) for each in files if each.startswith(SITE_PACKAGES)]
    jars = {re.sub(r"(_2\.13)?-[\d.]+\.jar", "", Path(each).name) for each in packages if each.endswith(".jar")}

    assert not [each for each in packages for pattern in unneeded if is_named_by(pattern, each)]
    assert {"spark-core", "spark-kubernetes", "kubernetes-client", "kubernetes-httpclient-vertx"} <= jars
    assert "log4j-layout-template-json" in jars


def test_version(image: Image) -> None:
    """`winnow --version` prints the version of the project."""
    ended = image.run("winnow", "--version")

    assert 0 == ended.code, ended.errors
    assert image.config["Labels"]["org.opencontainers.image.version"] in ended.output


def test_it_parses_with_the_kernels_that_it_brings(image: Image) -> None:
    """`winnow parse` cleanses the build's warm-up lines with the kernels compiled in the image."""
    parse = "winnow parse /opt/winnow/warm-up.log && diff -rq $BAKED_KERNELS $NUMBA_CACHE_DIR"
    ended = image.run("bash", "-c", parse)

    assert 0 == ended.code, ended.output + ended.errors
    assert len((ROOT / "docker/warm-up.log").read_text().splitlines()) == len(ended.output.splitlines())


def test_check_finds_nothing_wrong(image: Image, topics: ImageTopics) -> None:
    """`winnow check --connect` reaches the broker, finds the topics and exits with 0. The backend is bulk."""
    ended = image.run("winnow", "check", *topics.options, "--connect")

    assert 0 == ended.code, ended.errors
    assert "clients: bulk" in ended.output


def test_it_holds_the_client_of_every_store(image: Image) -> None:
    """`winnow check` accepts each store as a mirror, because the image includes every client."""
    mirrors = """[{name: redis, url: "redis://nowhere"}, {name: zookeeper, hosts: nowhere},
    {name: mysql, host: nowhere, user: u, password: p, database: d}, {name: hbase, host: nowhere},
    {name: files, url: "webhdfs://nowhere/o"}, {name: files, url: "s3://nowhere/o"}]"""

    ended = image.run("winnow", "check", "-c", CONFIG, "--set", f"offsets.mirrors={mirrors}")

    assert 0 == ended.code, ended.errors


def test_the_service_is_well_and_cleanses_each_line_once(image: Image, topics: ImageTopics) -> None:
    """
    `winnow run` in the image cleanses 4,000 good lines and 10 bad ones. More arrive while it stops; a second run
    finishes them.

    The image's health check reports the service as healthy. On SIGTERM Python commits and exits with 0. Each line
    arrives once, in order.
    """
    kind, *check = image.config["Healthcheck"]["Test"]
    bad = [b"rubbish %d" % n for n in range(10)]
    topics.write(LINES)
    produce(topics.kafka.bootstrap, topics.source, [Written(value) for value in bad])
    with image.start("winnow", "run", *topics.options) as container:
        until(lambda: topics.all_is_done)
        until(lambda: container.execute(*check).code == 0, "health: a busy machine may once be too slow for the check")
        topics.write(LINES)
        ended = container.stop()
    again = image.run("winnow", "run", *topics.options, "--until-end")

    assert "CMD" == kind
    assert 0 == ended.code, ended.errors
    assert "stopped" in {json.loads(row).get("event") for row in ended.errors.splitlines() if row.startswith("{")}
    assert 0 == again.code, again.errors
    assert topics.each_came_once
    assert bad == values(read(topics.kafka.bootstrap, topics.dead))
    assert topics.all_is_done


def test_a_service_without_an_answer_is_ill(image: Image) -> None:
    """The health check fails with a reason if `winnow run` does not respond. Any other command is healthy."""
    _, *check = image.config["Healthcheck"]["Test"]
    with image.start("bash", "-c", "sleep 600", "winnow", "run") as service, image.start("sleep", "600") as other:
        until(lambda: service.execute(*check).code)  # PID 1 may not be the command yet
        ill, well = service.execute(*check), other.execute(*check)

    assert 1 == ill.code
    assert "is not responding on port" in ill.errors
    assert (0, "", "") == well


def test_the_driver_starts_as_spark_on_kubernetes_calls_it(image: Image, topics: ImageTopics) -> None:
    """
    The driver is Winnow, and its JVM has the Kubernetes classes: it fails because there is no API server.

    It restarts itself in place, and SIGTERM ends it.
    """
    properties = (
        "spark.master=k8s://https://127.0.0.1:9\nspark.app.id=spark-0123\nspark.kubernetes.container.image=winnow\n"
    )
    driver = f'printf "$0" > /tmp/properties; exec {ENTRYPOINT} driver --properties-file /tmp/properties "$@"'
    main = ("--class", "org.apache.spark.deploy.PythonRunner", "local:///opt/winnow/main.py", "run", *topics.options)

    environment = {"SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1"}
    with image.start("bash", "-c", driver, properties, *main, environment=environment) as container:
        until(lambda: container.execute("bash", "-c", SECOND_JVM).code == 0)
        ended = container.stop()

    assert 0 == ended.code, ended.errors
    assert "Spark did not start" in ended.errors
    assert "driver_restarting" in ended.errors
    assert "NoClassDefFoundError" not in ended.errors
    assert "ClassNotFoundException" not in ended.errors


def test_an_executor_starts_as_spark_on_kubernetes_calls_it(image: Image) -> None:
    """The executor's JVM starts, cannot connect to a driver, and exits."""
    ended = image.run("executor", environment=EXECUTOR)

    assert 1 == ended.code, ended.errors
    assert "Connection refused: /127.0.0.1:9" in ended.errors
    assert "NoClassDefFoundError" not in ended.errors
