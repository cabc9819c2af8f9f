"""The manifests, against the schemas of Kubernetes and of the operator, and against each other."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from tests.deploy.conftest import CRD, Document, documents

KUBERNETES = "1.37"
NATIVE = ["ConfigMap", "Secret", "ServiceAccount", "Role", "RoleBinding"]
# Each of these can outlive the pod that mounts it, as a checkpoint would.
LASTING_VOLUMES = {"persistentVolumeClaim", "ephemeral", "hostPath", "nfs", "csi", "local", "awsElasticBlockStore"}


def test_manifests_are_applied_in_the_order_of_their_names(manifests: dict[str, Document]) -> None:
    """`kubectl apply -f k8s/` creates the application's mounts and service account before the application itself."""
    assert list(manifests) == [*NATIVE, "SparkApplication"]
    assert not [kind for kind, document in manifests.items() if "namespace" in document["metadata"]]


@pytest.mark.parametrize("kind", NATIVE)
def test_native_manifest_is_valid(manifests: dict[str, Document], kind: str) -> None:
    """Each manifest of a native kind has only fields that Kubernetes knows, and all required ones."""
    assert kubernetes_validate.validate(manifests[kind], KUBERNETES, strict=True) == KUBERNETES


def test_native_typo_is_found(manifests: dict[str, Document]) -> None:
    """A misspelt field of a native kind is invalid."""
    planted = copy.deepcopy(manifests["Role"])
    planted["rules"][0]["verb"] = planted["rules"][0]["verbs"]
    with pytest.raises(kubernetes_validate.ValidationError, match="verb"):
        kubernetes_validate.validate(planted, KUBERNETES, strict=True)


def strict(schema: Document) -> Document:
    """
    Rewrite a schema of a CRD as JSON Schema that allows no other fields.

    The API server prunes unknown fields in silence, and writes "integer or string" as an extension of its own.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    closed = dict(schema)
    if properties := schema.get("properties"):
        closed["properties"] = {name: strict(child) for name, child in properties.items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed.setdefault("additionalProperties", False)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            closed[inner] = strict(schema[inner])
    return closed


@pytest.fixture(scope="module")
def operator() -> Any:
    """Make a validator from the operator's own definition."""
    if not CRD.is_file():
        pytest.skip(f"the operator's CRD is not copied into this project, and {CRD} does not exist here")
    (definition,) = documents(CRD)
    (schema,) = [
        version["schema"]["openAPIV3Schema"]
        for version in definition["spec"]["versions"]
        if version["name"] == "v1beta2"
    ]
    return jsonschema.Draft202012Validator(strict(schema))


def problems(operator: Any, document: Document) -> list[str]:
    """List the violations of the operator's definition."""
    return [f"{error.json_path}: {error.message}" for error in operator.iter_errors(document)]


def test_application_is_valid(operator: Any, manifests: dict[str, Document]) -> None:
    """The SparkApplication has only fields that the operator knows, and all required ones."""
    assert problems(operator, manifests["SparkApplication"]) == []


def test_application_errors_are_found(operator: Any, manifests: dict[str, Document]) -> None:
    """A misspelt field, a missing one and a value that does not exist are each found, at any depth."""
    planted = copy.deepcopy(manifests["SparkApplication"])
    planted["spec"]["driver"]["memroy"] = planted["spec"]["driver"].pop("memory")
    planted["spec"]["volumes"][0]["emptydir"] = {}
    planted["spec"]["executor"]["secrets"][0] = {"name": "s", "path": "/s"}
    planted["spec"]["mode"] = "clutser"
    del planted["spec"]["sparkVersion"]
    found = "\n".join(sorted(problems(operator, planted)))
    for part in ("'memroy' was unexpected", "'emptydir' was unexpected", "'secretType' is a required", "'clutser'"):
        assert part in found
    assert "'sparkVersion' is a required property" in found


def keys_and_values(node: object) -> list[tuple[str, object]]:
    """List every key of a tree with its value."""
    if isinstance(node, list):
        return [pair for item in node for pair in keys_and_values(item)]
    if isinstance(node, dict):
        return [(key, value) for key, value in node.items()] + [
            pair for value in node.values() for pair in keys_and_values(value)
        ]
    return []


def test_nothing_outlives_a_pod(manifests: dict[str, Document], application: Document) -> None:
    """There is no checkpoint, no claim and no lasting volume: the only state is Kafka's offsets."""
    assert "PersistentVolumeClaim" not in manifests
    for kind, document in manifests.items():
        found = keys_and_values(document)
        assert not LASTING_VOLUMES & {key for key, _ in found}, kind
        assert not [key for key, _ in found if "checkpoint" in key.lower()], kind
        assert not [value for _, value in found if isinstance(value, str) and "checkpoint" in value.lower()], kind
    assert all(set(volume) == {"name", "emptyDir"} for volume in application["volumes"])
    assert {key: value for key, value in application["sparkConf"].items() if "PersistentVolumeClaim" in key} == {
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }


def test_driver_has_only_the_rights_it_needs(manifests: dict[str, Document]) -> None:
    """The driver may manage pods, create and delete its configmaps, and delete its service; there is no wildcard."""
    role = manifests["Role"]
    assert all(rule["apiGroups"] == [""] for rule in role["rules"])
    assert {tuple(rule["resources"]): set(rule["verbs"]) for rule in role["rules"]} == {
        ("pods",): {"create", "get", "list", "watch", "patch", "delete", "deletecollection"},
        ("configmaps",): {"create", "deletecollection"},
        ("services",): {"deletecollection"},
    }


def test_every_referenced_name_exists(manifests: dict[str, Document], application: Document) -> None:
    """Each object that a manifest refers to by name is created by another one."""
    spec, binding = application, manifests["RoleBinding"]
    assert spec["driver"]["serviceAccount"] == manifests["ServiceAccount"]["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == [spec["driver"]["serviceAccount"]]
    assert binding["roleRef"]["name"] == manifests["Role"]["metadata"]["name"]
    for role in ("driver", "executor"):
        assert spec[role]["configMaps"] == [{"name": manifests["ConfigMap"]["metadata"]["name"], "path": "/etc/winnow"}]
        (secret,) = spec[role]["secrets"]
        assert secret == {
            "name": manifests["Secret"]["metadata"]["name"],
            "path": "/etc/winnow/secrets",
            "secretType": "Generic",
        }
