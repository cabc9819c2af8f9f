"""The SparkApplication: how driver and executors run, where they may write, and when they are restarted."""

from __future__ import annotations

import re
import tomllib

import pytest

from app.spark.session import DEFAULTS
from tests.deploy.conftest import ROOT, Document

WORKER_MIB = 500


def test_spark_runs_one_attempt_of_a_task_and_waits_for_its_end(application: Document) -> None:
    """No task has a speculative attempt, Spark waits for the end of a killed one, and Python workers are reused."""
    conf = application["sparkConf"]
    assert conf["spark.speculation"] == "false"
    assert conf["spark.task.reaper.enabled"] == "true"
    assert conf["spark.python.worker.reuse"] == "true"
    assert "dynamicAllocation" not in application


def test_lost_executors_do_not_end_the_driver(application: Document) -> None:
    """Losses of executors expire, and evictions within minutes do not add up to the maximum; without it the fifth ends it."""
    conf = application["sparkConf"]
    for name in ("spark.executor.maxNumFailures", "spark.executor.failuresValidityInterval"):
        assert conf[name] == DEFAULTS[name]
    assert int(conf["spark.executor.maxNumFailures"]) >= 10 * application["executor"]["instances"]
    assert conf["spark.executor.failuresValidityInterval"] == "10m"


def test_service_is_always_restarted(application: Document) -> None:
    """The operator restarts the service after every end, and waits after each of the two kinds of failure; without a wait it gives up."""
    policy = application["restartPolicy"]
    assert policy["type"] == "Always"
    assert policy["onFailureRetryInterval"] > 0
    assert policy["onSubmissionFailureRetryInterval"] > 0


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_pods_are_restricted(role: str, application: Document) -> None:
    """Driver and executors meet the restricted Pod Security Standard, on a read-only root."""
    pod, own = application[role]["podSecurityContext"], application[role]["securityContext"]
    assert (pod["runAsNonRoot"], pod["runAsUser"], pod["seccompProfile"]) == (True, 185, {"type": "RuntimeDefault"})
    assert own["runAsNonRoot"] is True
    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own.get("privileged", False) is False
    assert not {"hostNetwork", "sidecars", "initContainers"} & application[role].keys()


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_pods_can_write_where_the_image_writes(role: str, application: Document, final_stage: str) -> None:
    """/tmp and the working folder are emptyDirs of a bounded size."""
    emptied = {volume["name"] for volume in application["volumes"] if volume["emptyDir"]["sizeLimit"]}
    mounted = {mount["mountPath"]: mount["name"] for mount in application[role]["volumeMounts"]}
    work = re.findall(r"^WORKDIR (.*)$", final_stage, re.MULTILINE)[-1]
    assert mounted.keys() == {"/tmp", work}
    assert set(mounted.values()) <= emptied


def mebibytes(quantity: str) -> int:
    """Read a size as Spark writes it."""
    return int(quantity[:-1]) * {"m": 1, "g": 1024}[quantity[-1]]


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_pods_have_room_and_time(role: str, application: Document) -> None:
    """Requests and limits are set, the memory holds heap and Python workers, and a stop has thirty seconds."""
    part = application[role]
    workers = part["cores"] if role == "executor" else 1
    assert {"coreRequest", "coreLimit", "memory", "memoryOverhead"} <= part.keys()
    assert mebibytes(part["memoryOverhead"]) >= workers * WORKER_MIB
    assert part["terminationGracePeriodSeconds"] == 30
    assert "spark.executor.pyspark.memory" not in application["sparkConf"]


def test_executors_are_two_of_two_slots(application: Document) -> None:
    """Two executors with two slots each run four tasks at once."""
    assert (application["executor"]["instances"], application["executor"]["cores"]) == (2, 2)


def version() -> str:
    """Read the version under which the image is tagged."""
    project: Document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def test_application_runs_the_program_of_the_image(
    application: Document, final_stage: str, services: dict[str, Document]
) -> None:
    """The application's image, program, command and Spark are those that the Dockerfile builds."""
    spec = application
    folder = re.findall(r"^COPY .*docker/main\.py.* (\S+)$", final_stage, re.MULTILINE)[0]
    assert spec["mainApplicationFile"] == f"local://{folder}main.py"
    assert spec["arguments"] == ["run", "-c", "/etc/winnow/winnow.yaml"]
    assert (spec["type"], spec["mode"]) == ("Python", "cluster")
    assert f"pyspark=={spec['sparkVersion']} " in (ROOT / "docker/requirements.lock").read_text("utf-8")
    assert spec["image"] == services["winnow"]["image"] == f"winnow:{version()}"
