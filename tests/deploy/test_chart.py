"""The chart: Helm's lint, the values its schema rejects, the effect of each value, and the plain manifests."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml

from app import __version__
from tests.deploy.chart import ALERTS, CHART, PLAIN, ROOT, plain, render
from tests.deploy.conftest import CUSTOM, VERSIONS, Document, by_name, documents_in
from tests.prometheus import labels, needs_promtool, promtool, scraped
from tests.support.docs import fenced
from tests.unit.status.snapshots import SNAPSHOT

SCORE = shutil.which("kube-score")
KUBE_SCORE_IGNORES = [
    "container-image-pull-policy",  # the tag is an immutable version
    "container-security-context-user-group-id",  # 185 is the user of Spark's own images
]
FOREIGN = {CUSTOM, "PodMonitor", "PrometheusRule", "ExternalSecret"}
STORE = {"enabled": True, "store": {"name": "vault"}, "data": {"spark.auth": {"key": "winnow"}}}
CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "a Deployment": {"shape": "Deployment"},
    "everything": {
        "shape": "Deployment",
        "image": {"tag": "2", "pullSecrets": ["registry"]},
        "secret": {"external": STORE},
        "driver": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "spot", "operator": "Exists"}]},
        "executor": {
            "instances": 5,
            "cores": 4,
            "cpuLimit": "6",
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        },
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "networkPolicy": {
            "httpFrom": [{"podSelector": {}}],
            "kafka": {"ports": [9093], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
            "egress": [{"ports": [{"port": 6379}]}],
        },
    },
    "nothing beside": {
        "executor": {"instances": 1, "spreadOver": []},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
    },
}


def objects(values: dict[str, Any], **more: Any) -> dict[str, Document]:
    """Render the chart and return its objects by kind and name."""
    files = {name: text for name, text in render(values, **more).items() if name.endswith(".yaml")}
    return by_name(document for text in files.values() for document in documents_in(text))


@pytest.mark.parametrize("case", CASES)
def test_helm_lints_it(case: str) -> None:
    """`helm lint --strict` finds nothing for any set of values."""
    report = helm_python.lint(CHART, CASES[case], strict=True, kube_version=f"v{VERSIONS[0]}.0")
    assert report["errors"] == []
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_what_it_renders_is_valid(case: str, version: str) -> None:
    """Each object of a native kind has only known fields, and all required ones."""
    native = [document for document in objects(CASES[case]).values() if document["kind"] not in FOREIGN]
    assert len(native) >= 5
    for document in native:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_pods_in_templates_are_valid(pods: dict[str, Document], version: str) -> None:
    """Pod templates inside the application and in Spark's files are valid too, although no schema covers them."""
    for pod in pods.values():
        named = {**pod["metadata"], "name": "pod"}
        kubernetes_validate.validate(
            {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": pod["spec"]}, version, strict=True
        )


@pytest.mark.skipif(SCORE is None, reason="kube-score is not installed: .ci/run builds it with Go")
@pytest.mark.parametrize("case", CASES)
def test_kube_score_finds_nothing(case: str, tmp_path: Path) -> None:
    """kube-score finds nothing, neither in the objects nor in the executors' pods, which are not among the objects."""
    found = objects(CASES[case])
    if spark := found.get("ConfigMap/winnow-1-spark"):
        found["Pod/executor"] = executor = yaml.safe_load(spark["data"]["executor.yaml"])
        executor["metadata"]["name"] = "executor"
        (container,) = executor["spec"]["containers"]
        container |= {"image": f"winnow:{__version__}"}
        for bound in container["resources"].values():
            bound |= {"cpu": "2", "memory": "2312Mi"}  # Spark's properties set these in the pod
    else:
        found = {
            name: each for name, each in found.items() if each["kind"] != "NetworkPolicy"
        }  # kube-score cannot see its pods
    (tmp_path / "all.yaml").write_text("\n---\n".join(map(json.dumps, found.values())))
    ignored = [word for name in KUBE_SCORE_IGNORES for word in ("--ignore-test", name)]
    done = subprocess.run(
        [
            SCORE or "",
            "score",
            *ignored,
            "--kubernetes-version",
            f"v{VERSIONS[0]}",
            "-o",
            "ci",
            str(tmp_path / "all.yaml"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[OK]" in done.stdout or case == "nothing beside"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"shape": "StatefulSet"}, "SparkApplication"),
        ({"exector": {"cores": 3}}, "exector"),
        ({"executor": {"core": 3}}, "core"),
        ({"generation": 0}, "generation"),
        ({"config": {"spark": {"spark.master": "local"}}}, "config"),
        ({"config": {"spark.spark.master": "local"}}, "spark.spark.master"),
        ({"config": {"group.id": 20261129}}, "group.id"),
        ({"config": {"parser": {"checks": {"country": {"one-of": ["SE", False]}}}}}, "one-of/1"),
        ({"config": {"parser.checks": {"version": {"one-of": [8]}}}}, "one-of/0"),
        ({"config": {"filter": [{"keep": {"field": "country", "one-of": [None]}}]}}, "one-of/0"),
        ({"sparkConf": {"speculation": "true"}}, "speculation"),
        ({"executor": {"overhead": 1000}}, "1544 are needed"),
        ({"secret": {"external": {"enabled": True}}}, "which store has the secrets"),
        ({"secret": {"external": STORE | {"data": {}}}}, "says where the store has each key"),
        ({"config": {"http": {"enabled": False}}}, "remove http.enabled"),
        ({"config": {"http.enabled": False}}, "remove http.enabled"),
        ({"config": {"http": {"address": "127.0.0.1"}}}, "remove http.address"),
        ({"config": {"http.address": "localhost"}}, "remove http.address"),
        ({"config": {"http.address": "::1"}}, "remove http.address"),
        ({"config": {"http.address": "0:0:0:0:0:0:0:1"}}, "remove http.address"),
        ({"config": {"http": {"port": 9000}}}, "set the chart's http.port to 9000"),
        ({"config": {"http.port": 0}}, "set the chart's http.port to 0"),
        ({"config": {"generation": 9}}, "set the chart's generation"),
        ({"config": {"handover.timeout": "2 minutes"}}, 'write "2 minutes" like 500ms, 90s, 2m or 1h'),
        ({"config": {"handover.timeout": "1m30s"}}, 'write "1m30s" like'),
        ({"config": {"handover": {"timeout": "PT2M"}, "handover.timeout": None}}, 'write "PT2M" like'),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], sentence: str) -> None:
    """An unknown name, an invalid value, too little memory or a page that no probe reaches is an error that says so."""
    with pytest.raises(helm_python.HelmError, match=sentence):
        render(values)


@pytest.mark.parametrize("shape", PLAIN)
def test_plain_manifests_are_the_charts(shape: str) -> None:
    """The plain manifests match the chart. After a change, run `make manifests`."""
    there = {path.name: path.read_text("utf-8") for path in PLAIN[shape].glob("*.yaml")}
    assert there == plain(shape)


def test_the_alerts_have_one_source() -> None:
    """The chart's copy is identical to docker/alerts.yaml, and the PrometheusRule contains its groups."""
    assert (CHART / "files/alerts.yaml").read_text() == ALERTS.read_text()
    rule = objects({"prometheusRule": {"enabled": True}})["PrometheusRule/winnow"]
    source = yaml.safe_load(ALERTS.read_text())
    of_the_group = "WinnowNoHeartbeat", "WinnowRestarts"
    for groups in (rule["spec"]["groups"], source["groups"]):
        groups[0]["rules"] = [each for each in groups[0]["rules"] if each["alert"] not in of_the_group]
    assert rule["spec"] == source


def fires(folder: Path, values: dict[str, Any], series: list[dict[str, str]], *alerts: dict[str, str]) -> None:
    """Check that exactly these alerts of the chart with these values fire after six minutes."""
    rule = objects({"prometheusRule": {"enabled": True}} | values)["PrometheusRule/winnow"]
    (folder / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    expected = {
        "expr": 'count by (alertname, group, namespace) (ALERTS{alertstate="firing"})',
        "eval_time": "6m",
        "exp_samples": [{"labels": labels(each), "value": 1} for each in alerts],
    }
    test = {"interval": "30s", "input_series": series, "promql_expr_test": [expected]}
    (folder / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": [test]})
    )
    promtool("test", "rules", str(folder / "test.yaml"))


def heartbeat(of: Mapping[str, str], values: str = "0+30x40") -> dict[str, str]:
    return {"series": f"winnow_alive_timestamp_seconds{labels(of)}", "values": values}


def starts(of: Mapping[str, str], *instances: str) -> Iterator[dict[str, str]]:
    """Yield a start in each of these pods, a minute after the other."""
    for number, name in enumerate(instances):
        before = f"_x{2 * number}" if number else ""
        at = labels({**of, "instance": name})
        yield {"series": f"winnow_start_timestamp_seconds{at}", "values": f"{before} {60 * number}x1 stale"}


@needs_promtool
def test_no_other_service_hides_one_that_is_gone_or_fails_again_and_again(tmp_path: Path) -> None:
    """Its alerts are about its own group, whatever its name, and each of its starts may be in another pod."""
    own = {"group": 'my "own": #1', "namespace": "default"}
    others = [heartbeat(own | other) for other in ({"group": "other"}, {"namespace": "staging"})]
    alerts = [{"alertname": name, **own} for name in ("WinnowNoHeartbeat", "WinnowRestarts")]

    fires(tmp_path, {"config": {"group.id": own["group"]}}, [*starts(own, *"abcd"), *others], *alerts)


@needs_promtool
@pytest.mark.parametrize("target", [{}, {"namespace": "default"}])
def test_a_service_that_lives_is_not_missed(target: dict[str, str], tmp_path: Path) -> None:
    """What it says of itself is enough: a scrape without the PodMonitor may know no more than its address."""
    lives = scraped(SNAPSHOT, ["winnow_alive_timestamp_seconds"], target)

    fires(tmp_path, {"config": {"group.id": SNAPSHOT.group}}, lives)


@needs_promtool
def test_the_starts_of_two_namespaces_do_not_add_up(tmp_path: Path) -> None:
    """Two services may have one group.id, on a Kafka cluster each."""
    here, there = ({"group": "g", "namespace": name} for name in ("default", "staging"))

    fires(tmp_path, {"config": {"group.id": "g"}}, [*starts(here, *"ab"), *starts(there, *"cd"), heartbeat(here)])


@needs_promtool
def test_a_suspended_service_is_not_missed(tmp_path: Path) -> None:
    """It was asked to be away. Its driver may still hang."""
    own = {"group": "g", "namespace": "default"}

    fires(tmp_path, {"suspend": True}, [])
    fires(tmp_path, {"suspend": True}, [heartbeat(own, "0x40")], {"alertname": "WinnowNoHeartbeat", **own})


def test_each_upgrade_takes_over() -> None:
    """The generation is the release's revision, so each upgrade has a new application name or a new pod."""
    assert objects({}, revision=7)["SparkApplication/winnow-7"]["spec"]["arguments"][-1] == "generation=7"
    assert "SparkApplication/winnow-12" in objects({"generation": 12}, revision=7)
    first, second = (objects({"shape": "Deployment"}, revision=number)["Deployment/winnow"] for number in (1, 2))
    assert first["spec"]["selector"] == second["spec"]["selector"]
    assert second["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "generation=2"


@pytest.mark.parametrize("shape", PLAIN)
def test_each_generation_has_its_own_configuration(shape: str) -> None:
    """An upgrade changes no file of a driver that works, and takes nothing away that its next executors mount."""
    found = objects({"shape": shape}, revision=7)
    maps = {name.removeprefix("ConfigMap/") for name in found if name.startswith("ConfigMap/")}
    assert maps == ({"winnow-7"} if shape == "SparkApplication" else {"winnow-7", "winnow-7-spark"})
    if shape == "SparkApplication":
        driver, executor = (
            found["SparkApplication/winnow-7"]["spec"][role]["template"] for role in ("driver", "executor")
        )
    else:
        driver = found["Deployment/winnow"]["spec"]["template"]
        executor = yaml.safe_load(found["ConfigMap/winnow-7-spark"]["data"]["executor.yaml"])
    assert maps_of(driver) == maps
    assert maps_of(executor) == set()


@pytest.mark.parametrize("shape", PLAIN)
def test_the_configuration_of_0_2_0_is_kept_until_its_executors_have_ended(shape: str) -> None:
    """They mount what this chart has under another name, so Helm deletes it: `keep` has to be on the object in the cluster."""
    section = (ROOT / "docs/upgrading.md").read_text().partition("\n## From 0.2.0\n")[2].partition("\n## ")[0]
    (keep,) = fenced(section, "sh")
    selector, resource_policy = re.findall(r"(\S+)=(\S+)", keep)
    deleted = re.findall(r"`kubectl delete configmap --ignore-not-found (.+)`", section)
    found = [each["metadata"] for name, each in objects({"shape": shape}).items() if name.startswith("ConfigMap/")]

    assert resource_policy == ("helm.sh/resource-policy", "keep")
    assert all(each["labels"].items() >= {selector} for each in found), "the labels are those of 0.2.0"
    assert deleted == ["winnow winnow-spark"]
    assert {each["name"] for each in found}.isdisjoint(deleted[0].split()), "the new version needs its own"


def maps_of(pod: Document) -> set[str]:
    """Return the names of the ConfigMaps that a pod mounts."""
    return {volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if "configMap" in volume}


@pytest.mark.parametrize("shape", ["SparkApplication", "Deployment"])
def test_helm_says_that_a_suspended_service_ends(shape: str) -> None:
    """It takes over from nobody, and has no pod whose status page could be reached."""
    works, ends = (render({"shape": shape, "suspend": each}, revision=2)["NOTES.txt"] for each in (False, True))

    assert ("takes over" in works, "port-forward" in works, "suspended" in works) == (True, True, False)
    assert ("takes over" in ends, "port-forward" in ends, "suspended" in ends) == (False, False, True)


def test_a_suspended_deployment_has_no_pod() -> None:
    """A suspended Deployment has no pod, just as the operator deletes the driver of a suspended application."""
    assert objects({"shape": "Deployment", "suspend": True})["Deployment/winnow"]["spec"]["replicas"] == 0


@pytest.mark.parametrize("shape", PLAIN)
def test_a_changed_configuration_changes_the_driver(shape: str) -> None:
    """Unlike a change of a mounted file, a changed checksum restarts the driver and resets the operator's retries."""
    kind = "SparkApplication/winnow-1" if shape == "SparkApplication" else "Deployment/winnow"
    one, other = (objects({"shape": shape, "config": {"log.level": level}})[kind] for level in ("info", "debug"))
    assert one["metadata"] == other["metadata"]
    assert one["spec"] != other["spec"]


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [("0s", 30), ("500ms", 31), ("90000ms", 120), ("90s", 120), ("2m", 150), ("1.5m", 120), (45, 75)],
)
def test_a_pod_outlives_the_hand_over(timeout: object, seconds: int) -> None:
    """Kubernetes kills a driver 30 s after its wait for its successor is over."""
    driver = objects({"config": {"handover.timeout": timeout}})["SparkApplication/winnow-1"]["spec"]["driver"]
    assert driver["template"]["spec"]["terminationGracePeriodSeconds"] == seconds


@pytest.mark.parametrize("shape", PLAIN)
@pytest.mark.parametrize("group", ["my group's name", "g-1", "a; b"])
def test_a_group_of_any_name_is_one_option_of_the_jvm(group: str, shape: str) -> None:
    """The JVM's options are split at blanks outside of quotes; a second word would be taken for the main class."""
    found = objects({"shape": shape, "config": {"group.id": group}})
    if shape == "Deployment":
        text = found["ConfigMap/winnow-1-spark"]["data"]["spark.properties"]
        conf = dict(line.split("=", 1) for line in text.splitlines() if line)
    else:
        conf = found["SparkApplication/winnow-1"]["spec"]["sparkConf"]
    assert shlex.split(conf["spark.driver.defaultJavaOptions"])[-1] == f"-Dwinnow.group={group}"


def test_a_backslash_reaches_spark() -> None:
    """Java's properties have it doubled, and YAML has it as it is."""
    values = {"sparkConf": {"spark.redaction.regex": r"secret|\bpw\b"}}

    file = objects(values | {"shape": "Deployment"})["ConfigMap/winnow-1-spark"]["data"]["spark.properties"]
    conf = objects(values)["SparkApplication/winnow-1"]["spec"]["sparkConf"]

    assert r"spark.redaction.regex=secret|\\bpw\\b" in file.splitlines()
    assert r"secret|\bpw\b" == conf["spark.redaction.regex"]


@pytest.mark.parametrize(
    ("instances", "cores", "partitions", "mebibytes"), [(2, 2, 8, 1544), (1, 2, 1000, 3536), (4, 4, 100, 2586)]
)
def test_memory_follows_slots_and_partitions(instances: int, cores: int, partitions: int, mebibytes: int) -> None:
    """Memory is 536 MiB for the JVM, 500 MiB for each core's worker, and 2 MiB for each partition of an executor."""
    executor = {"instances": instances, "cores": cores}
    found = objects({"executor": executor, "partitions": partitions})["SparkApplication/winnow-1"]["spec"]["executor"]
    assert found["memoryOverhead"] == f"{mebibytes}m"


def test_executors_talk_to_the_driver_and_to_kafka_only() -> None:
    """Network policies admit driver, executors, Kafka, DNS, the driver's API server, and the given http clients."""
    found = objects({"networkPolicy": {"httpFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]}})
    driver, executor = (found[f"NetworkPolicy/winnow-{role}"]["spec"] for role in ("driver", "executor"))
    assert [ports(rule) for rule in driver["ingress"]] == [{7078, 7079}, {8090}]
    assert [ports(rule) for rule in driver["egress"]] == [{7079}, {443, 6443}, {9092, 9093}, {53}]
    assert [ports(rule) for rule in executor["ingress"]] == [{7079}]
    assert [ports(rule) for rule in executor["egress"]] == [{7078, 7079}, {9092, 9093}, {53}]
    assert ports(objects({})["NetworkPolicy/winnow-driver"]["spec"]["ingress"][-1]) == {7078, 7079}


def ports(rule: Document) -> set[int]:
    return {port["port"] for port in rule["ports"]}


def test_a_drain_takes_one_executor_after_the_other() -> None:
    """A drain evicts one of several executors at a time. A single executor may be evicted."""
    assert objects({"executor": {"instances": 5}})["PodDisruptionBudget/winnow-executor"]["spec"]["minAvailable"] == 4
    assert not [name for name in objects({"executor": {"instances": 1}}) if name.startswith("PodDisruptionBudget")]


# For each key, another value and the text rendered only with it, plus {"shape": "Deployment"} if that shows more.
EFFECTS: dict[str, tuple[object, str]] = {
    "shape": ("Deployment", "kind: Deployment"),
    "generation": (7, "generation=7"),
    "suspend": (True, "suspend: true"),
    "image.repository": ("registry/winnow", "registry/winnow:"),
    "image.tag": ("1.2.3", "winnow:1.2.3"),
    "image.digest": ("sha256:" + 64 * "a", "winnow@sha256:aaa"),
    "image.pullPolicy": ("Always", "imagePullPolicy: Always"),
    "image.pullSecrets": (["registry"], "- registry"),
    "config": ({"group.id": "mine"}, "-Dwinnow.group=mine"),
    "secret.name": ("mine", "secretName: mine"),
    "secret.external.enabled": (STORE, "kind: ExternalSecret"),
    "secret.external.store.kind": (
        STORE | {"store": {"kind": "ClusterSecretStore", "name": "v"}},
        "kind: ClusterSecretStore",
    ),
    "secret.external.store.name": (STORE, "name: vault"),
    "secret.external.refreshInterval": (STORE | {"refreshInterval": "5m"}, "refreshInterval: 5m"),
    "secret.external.data": (STORE, "secretKey: spark.auth"),
    "partitions": (1000, "memoryOverhead: 2536m"),
    "driver.cpuRequest": ("700m", 'coreRequest: "700m"'),
    "driver.cpuLimit": ("2500m", 'coreLimit: "2500m"'),
    "driver.heap": (900, "memory: 900m"),
    "driver.overhead": (700, "memoryOverhead: 700m"),
    "driver.nodeSelector": ({"disk": "ssd"}, "disk: ssd"),
    "driver.tolerations": ([{"key": "spot"}], "- key: spot"),
    "driver.lostNodeSeconds": (77, "tolerationSeconds: 77"),
    "driver.priorityClassName": ("high", "priorityClassName: high"),
    "executor.instances": (3, "instances: 3"),
    "executor.cores": (5, "cores: 5"),
    "executor.cpuRequest": ("1500m", 'coreRequest: "1500m"'),
    "executor.cpuLimit": ("9", 'coreLimit: "9"'),
    "executor.heap": (901, "memory: 901m"),
    "executor.overhead": (4000, "memoryOverhead: 4000m"),
    "executor.spreadOver": (["topology.kubernetes.io/zone"], "topologyKey: topology.kubernetes.io/zone"),
    "executor.nodeSelector": ({"disk": "hdd"}, "disk: hdd"),
    "executor.tolerations": ([{"key": "slow"}], "- key: slow"),
    "executor.priorityClassName": ("low", "priorityClassName: low"),
    "sparkConf": ({"spark.locality.wait": "1s"}, "spark.locality.wait: 1s"),
    "restartSeconds": (9, "onFailureRetryInterval: 9"),
    "http.port": (9100, "port: 9100"),
    "podMonitor.enabled": (True, "kind: PodMonitor"),
    "podMonitor.interval": ({"enabled": True, "interval": "7s"}, "interval: 7s"),
    "podMonitor.labels": ({"enabled": True, "labels": {"release": "p"}}, "release: p"),
    "prometheusRule.enabled": (True, "kind: PrometheusRule"),
    "prometheusRule.runbook": (
        {"enabled": True, "runbook": "https://wiki/winnow"},
        "runbook_url: https://wiki/winnow#a-partition-is-blocked",
    ),
    "prometheusRule.labels": ({"enabled": True, "labels": {"release": "q"}}, "release: q"),
    "networkPolicy.enabled": (False, ""),
    "networkPolicy.httpFrom": ([{"podSelector": {"matchLabels": {"app": "p"}}}], "app: p"),
    "networkPolicy.kafka.ports": ([9999], "port: 9999"),
    "networkPolicy.kafka.to": ([{"ipBlock": {"cidr": "10.1.0.0/16"}}], "cidr: 10.1.0.0/16"),
    "networkPolicy.apiServer.ports": ([16443], "port: 16443"),
    "networkPolicy.apiServer.to": ([{"ipBlock": {"cidr": "10.2.0.0/16"}}], "cidr: 10.2.0.0/16"),
    "networkPolicy.dns.to": ([{"ipBlock": {"cidr": "10.3.0.0/16"}}], "cidr: 10.3.0.0/16"),
    "networkPolicy.egress": ([{"ports": [{"port": 6379}]}], "port: 6379"),
    "podDisruptionBudget.enabled": (False, ""),
}
FREE = {"config", "secret.external.data"}
"""Values whose keys are the user's."""


def leaves(tree: Document, prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and value and path not in FREE:
            yield from leaves(value, f"{path}.")
        else:
            yield path


def test_every_value_is_tested() -> None:
    """Every value of values.yaml has an entry here."""
    assert set(leaves(yaml.safe_load((CHART / "values.yaml").read_text()))) == EFFECTS.keys()


@cache
def by_default() -> str:
    return "".join(render({}).values())


@pytest.mark.parametrize("path", EFFECTS)
def test_each_value_changes_something(path: str) -> None:
    """The expected text is rendered only with the value. A value that switches something off renders less."""
    value, expected = EFFECTS[path]
    whole = isinstance(value, dict) and ("enabled" in value)
    names = path.split(".")
    if whole:  # it needs its neighbours
        names = names[: 1 + (names[0] == "secret")]
    wanted: Any = value
    for name in reversed(names):
        wanted = {name: wanted}
    without, found = by_default(), "".join(render(wanted).values())
    if expected:
        assert expected in found
        assert expected not in without
    else:
        assert len(found) < len(without)
