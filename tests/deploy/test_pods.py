"""The pods of both shapes: their restrictions, writable paths and permissions."""

from __future__ import annotations

import re

import pytest

from app.config.model import Http
from tests.deploy.conftest import Document

ROLES = ["driver", "executor"]


@pytest.mark.parametrize("role", ROLES)
def test_pods_are_restricted(role: str, pods: dict[str, Document]) -> None:
    """Driver and executors meet the restricted Pod Security Standard, on a read-only root."""
    spec = pods[role]["spec"]
    (container,) = spec["containers"]
    pod, own = spec["securityContext"], container["securityContext"]
    assert (pod["runAsNonRoot"], pod["runAsUser"], pod["seccompProfile"]) == (True, 185, {"type": "RuntimeDefault"})
    assert own["runAsNonRoot"] is True
    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["privileged"] is False
    assert not {"hostNetwork", "hostPID", "initContainers"} & spec.keys()


@pytest.mark.parametrize("role", ROLES)
def test_pods_can_write_where_the_image_writes(role: str, pods: dict[str, Document], final_stage: str) -> None:
    """Only /tmp and the working folder are writable, as emptyDirs of a bounded size."""
    spec = pods[role]["spec"]
    emptied = {volume["name"] for volume in spec["volumes"] if volume.get("emptyDir", {}).get("sizeLimit")}
    mounts = [mount for mount in spec["containers"][0]["volumeMounts"] if not mount.get("readOnly")]
    work = re.findall(r"^WORKDIR (.*)$", final_stage, re.MULTILINE)[-1]
    assert {mount["mountPath"] for mount in mounts} == {"/tmp", work}
    assert {mount["name"] for mount in mounts} <= emptied


def test_executors_are_nobody(pods: dict[str, Document]) -> None:
    """Executors have their own account without a token. With the driver's, they could mount any Secret in new pods."""
    driver, executor = (pods[role]["spec"] for role in ROLES)
    assert executor["serviceAccountName"] == "winnow-executor"
    assert executor["automountServiceAccountToken"] is False
    assert (driver["serviceAccountName"], driver["automountServiceAccountToken"]) == ("winnow", True)


def test_spark_is_told_who_executors_are(application: Document, deployment: dict[str, Document]) -> None:
    """The application sets the executors' account in its own field, a Deployment in Spark's property."""
    properties = deployment["ConfigMap/winnow-1-spark"]["data"]["spark.properties"].splitlines()
    name = "spark.kubernetes.authenticate.executor.serviceAccountName"
    assert application["executor"]["serviceAccount"] == "winnow-executor"
    assert name not in application["sparkConf"]
    assert f"{name}=winnow-executor" in properties


@pytest.mark.parametrize("place", ["manifests", "deployment"])
def test_only_the_driver_has_rights(place: str, request: pytest.FixtureRequest) -> None:
    """The driver may manage only pods, executors have no rights, and no account mounts a token by default."""
    found: dict[str, Document] = request.getfixturevalue(place)
    assert found["Role/winnow-driver"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "watch", "delete"]}
    ]
    binding = found["RoleBinding/winnow-driver"]
    assert binding["roleRef"]["name"] == "winnow-driver"
    assert [subject["name"] for subject in binding["subjects"]] == ["winnow"]
    accounts = {name: each for name, each in found.items() if each["kind"] == "ServiceAccount"}
    assert accounts.keys() == {"ServiceAccount/winnow", "ServiceAccount/winnow-executor"}
    assert not any(account["automountServiceAccountToken"] for account in accounts.values())


def test_spark_asks_for_no_more_rights(spark_conf: dict[str, str]) -> None:
    """Spark creates no ConfigMap and deletes neither services nor claims, which are deleted with their pod."""
    assert spark_conf["spark.kubernetes.executor.disableConfigMap"] == "true"
    assert spark_conf["spark.kubernetes.driver.service.deleteOnTermination"] == "false"
    assert spark_conf["spark.kubernetes.driver.ownPersistentVolumeClaim"] == "false"
    assert spark_conf["spark.kubernetes.driver.reusePersistentVolumeClaim"] == "false"


def test_nobody_in_the_cluster_can_ask_spark(spark_conf: dict[str, str]) -> None:
    """Spark's UI is off. Traffic between driver and executors is authenticated and encrypted, on fixed ports."""
    assert spark_conf["spark.ui.enabled"] == "false"
    assert spark_conf["spark.authenticate"] == "true"
    assert spark_conf["spark.network.crypto.enabled"] == "true"
    ports = {name: port for name, port in spark_conf.items() if re.search(r"\bport$", name, re.IGNORECASE)}
    assert ports == {
        "spark.driver.port": "7078",
        "spark.driver.blockManager.port": "7079",
        "spark.blockManager.port": "7079",
    }


def test_the_status_page_can_be_found(pods: dict[str, Document]) -> None:
    """The driver names the port of the status page for people and for Prometheus. Executors have none."""
    port = str(Http().port)
    driver, executor = (pods[role] for role in ROLES)
    assert [("http", port)] == [(p["name"], str(p["containerPort"])) for p in driver["spec"]["containers"][0]["ports"]]
    assert driver["metadata"]["annotations"]["prometheus.io/port"] == port
    assert "annotations" not in executor["metadata"]
    assert "ports" not in executor["spec"]["containers"][0]


def test_a_driver_that_hangs_is_ended(pods: dict[str, Document]) -> None:
    """/healthz fails a hanging driver only after docker/main.py has waited for Kafka twice, a minute each."""
    probe = pods["driver"]["spec"]["containers"][0]["livenessProbe"]
    assert probe["httpGet"] == {"path": "/healthz", "port": "http"}
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 180


def test_a_successor_has_time_to_take_over(pods: dict[str, Document], configuration: str) -> None:
    """A pod outlives the driver's wait for its successor, and a lost node is given up within half a minute."""
    spec = pods["driver"]["spec"]
    assert "handover.timeout: 120s" in configuration
    assert spec["terminationGracePeriodSeconds"] == 150
    left = {each["key"]: each["tolerationSeconds"] for each in spec["tolerations"]}
    assert left == {"node.kubernetes.io/not-ready": 30, "node.kubernetes.io/unreachable": 30}


def test_executors_are_spread(pods: dict[str, Document]) -> None:
    """If there are several executors, the loss of one node does not take all of them."""
    (spread,) = pods["executor"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert spread["labelSelector"]["matchLabels"].items() <= pods["executor"]["metadata"]["labels"].items()
