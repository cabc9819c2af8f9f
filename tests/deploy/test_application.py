"""How Spark runs in both shapes, and what only the SparkApplication sets: resources and restarts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app import __version__, config
from app.spark.logs import CONFIGURATION, TEMPLATE
from app.spark.session import DEFAULTS
from tests.deploy.conftest import ROOT, Document

WORKER_MIB = 500


def test_spark_runs_one_attempt_of_a_task_and_waits_for_its_end(
    application: Document, spark_conf: dict[str, str]
) -> None:
    """Tasks are never run speculatively, Spark waits until a killed task has ended, and Python workers are reused."""
    conf = spark_conf
    assert conf["spark.speculation"] == "false"
    assert conf["spark.task.reaper.enabled"] == "true"
    assert conf["spark.python.worker.reuse"] == "true"
    assert "dynamicAllocation" not in application


def test_lost_executors_do_not_end_the_driver(application: Document, spark_conf: dict[str, str]) -> None:
    """Executor failures expire, so evictions do not add up to the maximum and end the driver."""
    conf = spark_conf
    for name in ("spark.executor.maxNumFailures", "spark.executor.failuresValidityInterval"):
        assert conf[name] == DEFAULTS[name]
    assert int(conf["spark.executor.maxNumFailures"]) >= 10 * application["executor"]["instances"]
    assert conf["spark.executor.failuresValidityInterval"] == "10m"


def test_the_driver_of_spark_logs_as_winnow_does(
    spark_conf: dict[str, str], image_environment: dict[str, str], configuration: str
) -> None:
    """Spark's log format comes from files in the image, and the group from the configuration."""
    folder = f"{image_environment['SPARK_HOME'].removesuffix('pyspark')}app/spark/"
    words = spark_conf["spark.driver.defaultJavaOptions"].split()
    options = dict(word.removeprefix("-D").split("=") for word in words)

    assert f"{folder}{CONFIGURATION.name}" == options["log4j2.configurationFile"]
    assert f"file://{folder}{TEMPLATE.name}" == options["winnow.log.template"]
    assert f"group.id: {options['winnow.group']}" in configuration


def test_service_is_always_restarted(application: Document) -> None:
    """The operator always restarts the service. Its intervals are short, as they grow, but not 0, which gives up."""
    policy = application["restartPolicy"]
    assert policy["type"] == "Always"
    assert 0 < policy["onFailureRetryInterval"] <= 5
    assert 0 < policy["onSubmissionFailureRetryInterval"] <= 5


def mebibytes(quantity: str) -> int:
    """Read a size as Spark writes it."""
    return int(quantity[:-1]) * {"m": 1, "g": 1024}[quantity[-1]]


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_pods_have_room(role: str, application: Document) -> None:
    """Requests and limits are set, and the memory fits the heap and the Python workers."""
    part = application[role]
    workers = part["cores"] if role == "executor" else 1
    assert {"coreRequest", "coreLimit", "memory", "memoryOverhead"} <= part.keys()
    assert mebibytes(part["memoryOverhead"]) >= workers * WORKER_MIB
    assert "spark.executor.pyspark.memory" not in application["sparkConf"]


def test_executors_are_two_of_two_slots(application: Document) -> None:
    """Two executors with two slots each run four tasks at once."""
    assert (application["executor"]["instances"], application["executor"]["cores"]) == (2, 2)


def test_application_runs_the_program_of_the_image(
    application: Document, final_stage: str, services: dict[str, Document]
) -> None:
    """The application's image, program, command and Spark version match the Dockerfile."""
    spec = application
    folder = re.findall(r"^COPY .*docker/main\.py.* (\S+)$", final_stage, re.MULTILINE)[0]
    assert spec["mainApplicationFile"] == f"local://{folder}main.py"
    assert spec["arguments"] == ["run", "-c", "/etc/winnow/winnow.yaml", "--set", "generation=1"]
    assert (spec["type"], spec["mode"]) == ("Python", "cluster")
    assert f"pyspark=={spec['sparkVersion']} " in (ROOT / "docker/requirements.lock").read_text("utf-8")
    assert spec["image"] == services["winnow"]["image"] == f"winnow:{__version__}"


def test_both_shapes_run_the_same(application: Document, deployment: dict[str, Document]) -> None:
    """Both shapes have the same image, program, arguments, resources and Spark properties."""
    (driver,) = deployment["Deployment/winnow"]["spec"]["template"]["spec"]["containers"]
    lines = deployment["ConfigMap/winnow-1-spark"]["data"]["spark.properties"].splitlines()
    conf, executor = dict(line.split("=", 1) for line in lines), application["executor"]
    assert driver["image"] == conf["spark.kubernetes.container.image"] == application["image"]
    assert driver["args"][3:] == [application["mainApplicationFile"], *application["arguments"]]
    assert application["sparkConf"].items() <= conf.items()
    assert executor == executor | {
        "instances": int(conf["spark.executor.instances"]),
        "cores": int(conf["spark.executor.cores"]),
        "coreRequest": conf["spark.kubernetes.executor.request.cores"],
        "coreLimit": conf["spark.kubernetes.executor.limit.cores"],
        "memory": conf["spark.executor.memory"],
        "memoryOverhead": conf["spark.executor.memoryOverhead"],
    }
    room = mebibytes(application["driver"]["memory"]) + mebibytes(application["driver"]["memoryOverhead"])
    assert driver["resources"]["limits"]["memory"] == driver["resources"]["requests"]["memory"] == f"{room}Mi"


def test_a_deployment_tells_spark_what_only_the_pod_knows(deployment: dict[str, Document], tmp_path: Path) -> None:
    """The pod's address, name and namespace reach Spark's properties through environment variables."""
    (driver,) = deployment["Deployment/winnow"]["spec"]["template"]["spec"]["containers"]
    fields = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in driver["env"] if "valueFrom" in each}
    assert fields.pop("SPARK_DRIVER_BIND_ADDRESS") == "status.podIP"
    (tmp_path / "winnow.yaml").write_text(deployment["ConfigMap/winnow-1"]["data"]["winnow.yaml"])
    assert config.load(tmp_path / "winnow.yaml", environ=fields).spark == {
        "spark.driver.host": "status.podIP",
        "spark.kubernetes.driver.pod.name": "metadata.name",
        "spark.kubernetes.namespace": "metadata.namespace",
    }


def test_a_deployment_upgrades_by_take_over(deployment: dict[str, Document]) -> None:
    """The next generation's pod is ready before the earlier one is asked to stop."""
    spec = deployment["Deployment/winnow"]["spec"]
    (driver,) = spec["template"]["spec"]["containers"]
    assert spec["replicas"] == 1
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert spec["minReadySeconds"] > 0
    assert driver["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert driver["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_an_application_has_no_probe_that_delays_its_name(application: Document) -> None:
    """No probe delays the driver's name: executors need it, and it is published only once the driver is ready."""
    (driver,) = application["driver"]["template"]["spec"]["containers"]
    assert not {"startupProbe", "readinessProbe"} & driver.keys()
