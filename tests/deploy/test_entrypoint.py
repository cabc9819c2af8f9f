"""The image's entrypoint, with stubs for the programs it starts."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.conftest import ENTRYPOINT, Document
from tests.support.waiting import PATIENCE

STUB = """#!{python} -IS
import json, os, sys
print(json.dumps({{"argv": sys.argv, "env": dict(os.environ), "pid": os.getpid()}}))
"""
SPARK_EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver-svc:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "768m",
    "SPARK_APPLICATION_ID": "spark-0123",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "winnow-exec-3",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_HOME": "/spark",
}
SPARK_DRIVER = ["driver", "--properties-file", "/opt/spark/conf/spark.properties"]


class StubbedEntrypoint:
    """The entrypoint, with stubs that print how they were called."""

    def __init__(self, folder: Path) -> None:
        """Put the programs into a folder."""
        self.folder = folder
        for program in ("java", "python3", "winnow"):
            (folder / program).write_text(STUB.format(python=sys.executable))
            (folder / program).chmod(0o755)

    def start(self, *arguments: str, **environment: str) -> tuple[int, str, str, int]:
        """Run the entrypoint. Return its exit code, output, errors and process id."""
        with subprocess.Popen(
            [ENTRYPOINT, *arguments],
            env={"PATH": f"{self.folder}:/usr/bin:/bin", "PYSPARK_PYTHON": str(self.folder / "python3")} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            output, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, output, errors, process.pid

    def started(self, *arguments: str, **environment: str) -> Document:
        """Run the entrypoint and return the report of the stub it started."""
        code, output, errors, pid = self.start(*arguments, **environment)
        assert (code, errors) == (0, "")
        report: Document = json.loads(output)
        assert report["pid"] == pid, "the program must replace the entrypoint, or it never sees a signal"
        return report


@pytest.fixture
def entrypoint(tmp_path: Path) -> StubbedEntrypoint:
    """Make an entrypoint with stubs."""
    return StubbedEntrypoint(tmp_path)


def test_executor_is_called_as_spark_expects(entrypoint: StubbedEntrypoint) -> None:
    """An executor runs Spark's own class, with Java's options in order and each setting in its place."""
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 0, 9)} | {
        "SPARK_JAVA_OPT_1": "-Dtext=two words 'and' \"quotes\""
    }
    report = entrypoint.started("executor", **SPARK_EXECUTOR, **options)
    assert report["argv"] == [
        str(entrypoint.folder / "java"),
        "-Dn=0",
        "-Dtext=two words 'and' \"quotes\"",
        "-Dn=9",
        "-Dn=10",
        "-Xms768m",
        "-Xmx768m",
        "-cp",
        "/opt/spark/conf:/spark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url",
        "spark://CoarseGrainedScheduler@driver-svc:7078",
        "--executor-id",
        "3",
        "--cores",
        "2",
        "--app-id",
        "spark-0123",
        "--hostname",
        "10.0.0.7",
        "--resourceProfileId",
        "0",
        "--podName",
        "winnow-exec-3",
    ]


def test_executor_uses_the_java_of_java_home(entrypoint: StubbedEntrypoint, tmp_path: Path) -> None:
    """JAVA_HOME takes precedence over PATH, and a class path added by Spark is kept."""
    home = tmp_path / "jvm"
    (home / "bin").mkdir(parents=True)
    (home / "bin/java").symlink_to(entrypoint.folder / "java")
    report = entrypoint.started("executor", **SPARK_EXECUTOR, JAVA_HOME=str(home), SPARK_CLASSPATH="/extra.jar")
    assert report["argv"][0] == str(home / "bin/java")
    assert "/opt/spark/conf:/extra.jar:/spark/jars/*" in report["argv"]


def test_executor_that_reads_its_secret_from_a_file_gets_its_master(entrypoint: StubbedEntrypoint) -> None:
    """An executor with a secret file gets Kubernetes as its master, without which Spark ignores the file."""
    secret = "-Dspark.authenticate.secret.file=/etc/winnow/secrets/spark.auth"
    plain = entrypoint.started("executor", **SPARK_EXECUTOR, SPARK_JAVA_OPT_0="-Dspark.authenticate=true")["argv"]
    with_secret = entrypoint.started("executor", **SPARK_EXECUTOR, SPARK_JAVA_OPT_0=secret)["argv"]
    assert not [argument for argument in plain if argument.startswith("-Dspark.master")]
    assert with_secret[1:4] == [secret, "-Dspark.master=k8s://driver", "-Xms768m"]


@pytest.mark.parametrize("missing", sorted(SPARK_EXECUTOR.keys() - {"SPARK_CONF_DIR"}))
def test_executor_does_not_start_without_a_setting(entrypoint: StubbedEntrypoint, missing: str) -> None:
    """An executor that lacks one of Spark's settings exits at once and names it."""
    code, output, errors, _ = entrypoint.start(
        "executor", **{name: value for name, value in SPARK_EXECUTOR.items() if name != missing}
    )
    assert code != 0
    assert output == ""
    assert missing in errors


def test_driver_is_the_python_program(entrypoint: StubbedEntrypoint) -> None:
    """The driver is Python itself. Its JVM gets Spark's properties, client mode and the pod's address."""
    report = entrypoint.started(
        *SPARK_DRIVER,
        "local:///opt/winnow/main.py",
        "run",
        "-c",
        "/etc/winnow/winnow.yaml",
        SPARK_DRIVER_BIND_ADDRESS="10.0.0.5",
    )
    assert report["argv"] == [
        str(entrypoint.folder / "python3"),
        "/opt/winnow/main.py",
        "run",
        "-c",
        "/etc/winnow/winnow.yaml",
    ]
    assert shlex.split(report["env"]["PYSPARK_SUBMIT_ARGS"]) == [
        "--properties-file",
        "/opt/spark/conf/spark.properties",
        "--deploy-mode",
        "client",
        "--conf",
        "spark.driver.bindAddress=10.0.0.5",
        "pyspark-shell",
    ]


def test_driver_arguments_arrive_unchanged(entrypoint: StubbedEntrypoint) -> None:
    """Blanks, quotes and options after the program belong to the program; options before it belong to Spark."""
    report = entrypoint.started(
        "driver",
        "--name",
        "it's two words",
        "local:///opt/winnow/main.py",
        "--set",
        "a b='c'",
        "",
        SPARK_DRIVER_BIND_ADDRESS="::1",
    )
    assert report["argv"][1:] == ["/opt/winnow/main.py", "--set", "a b='c'", ""]
    assert shlex.split(report["env"]["PYSPARK_SUBMIT_ARGS"])[:2] == ["--name", "it's two words"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*SPARK_DRIVER], "no program given"),
        ([*SPARK_DRIVER, "s3a://bucket/main.py"], "s3a://bucket/main.py is not in the image"),
        (["driver", "--properties-file"], "--properties-file has no value"),
    ],
)
def test_driver_refuses_what_it_cannot_run(entrypoint: StubbedEntrypoint, arguments: list[str], sentence: str) -> None:
    """A driver whose program is not in the image exits with the usage error code and names what is missing."""
    code, output, errors, _ = entrypoint.start(*arguments, SPARK_DRIVER_BIND_ADDRESS="10.0.0.5")
    assert (code, output) == (2, "")
    assert sentence in errors


def test_driver_needs_the_address_to_bind(entrypoint: StubbedEntrypoint) -> None:
    """A driver without an address from Spark exits at once and names the variable."""
    code, _, errors, _ = entrypoint.start(*SPARK_DRIVER, "local:///opt/winnow/main.py")
    assert code != 0
    assert "SPARK_DRIVER_BIND_ADDRESS" in errors


def test_any_other_command_is_run_as_given(entrypoint: StubbedEntrypoint) -> None:
    """A command other than driver or executor runs unchanged."""
    assert entrypoint.started("winnow", "parse", "a b", "-")["argv"][1:] == ["parse", "a b", "-"]


def test_no_command_is_winnow(entrypoint: StubbedEntrypoint) -> None:
    """A container without a command runs `winnow`, which prints its help."""
    assert entrypoint.started()["argv"] == [str(entrypoint.folder / "winnow")]


def test_service_links_are_not_configuration(entrypoint: StubbedEntrypoint) -> None:
    """The variables that Kubernetes sets for a Service named winnow-... are dropped; the user's own are kept."""
    links = {
        "WINNOW_UI_SVC_SERVICE_HOST": "10.1.1.1",
        "WINNOW_UI_SVC_SERVICE_PORT": "4040",
        "WINNOW_UI_SVC_SERVICE_PORT_SPARK_DRIVER_UI_PORT": "4040",
        "WINNOW_UI_SVC_PORT": "tcp://10.1.1.1:4040",
        "WINNOW_UI_SVC_PORT_4040_TCP": "tcp://10.1.1.1:4040",
        "WINNOW_UI_SVC_PORT_4040_TCP_ADDR": "10.1.1.1",
    }
    keys = {"WINNOW_SOURCE__TOPICS": "a,b", "WINNOW_METRICS__PORT": "9404", "WINNOW_UI": "x"}
    report = entrypoint.started("winnow", **links, **keys)
    assert {name: value for name, value in report["env"].items() if name.startswith("WINNOW")} == keys


def test_kernels_are_copied_once(entrypoint: StubbedEntrypoint, tmp_path: Path) -> None:
    """The kernels are copied to a folder that Numba can write, and a restart keeps that folder."""
    baked, cache = tmp_path / "baked", tmp_path / "cache"
    (baked / "parsers/compiled").mkdir(parents=True)
    (baked / "parsers/compiled/kernels.nbi").write_text("baked")
    folders = {"BAKED_KERNELS": str(baked), "NUMBA_CACHE_DIR": str(cache)}
    entrypoint.started("winnow", **folders)
    assert (cache / "parsers/compiled/kernels.nbi").read_text() == "baked"
    (cache / "parsers/compiled/kernels.nbi").write_text("newer")
    entrypoint.started("winnow", **folders)
    assert (cache / "parsers/compiled/kernels.nbi").read_text() == "newer"
    assert sorted(path.name for path in cache.iterdir()) == ["parsers"]


def test_entrypoint_is_strict() -> None:
    """The script is executable and stops at the first failure or unset variable."""
    assert os.access(ENTRYPOINT, os.X_OK)
    assert "\nset -euo pipefail\n" in ENTRYPOINT.read_text("utf-8")
