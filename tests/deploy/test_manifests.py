"""The manifests, checked against the schemas of Kubernetes and of the operator, and against each other."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from tests.deploy.chart import render
from tests.deploy.conftest import CRD, CUSTOM, VERSIONS, Document, documents, documents_in

# Like a checkpoint, each of these can outlive the pod that mounts it.
LASTING_VOLUMES = {"persistentVolumeClaim", "ephemeral", "hostPath", "nfs", "csi", "local", "awsElasticBlockStore"}


def test_manifests_are_applied_in_the_order_of_their_names(manifests: dict[str, Document]) -> None:
    """`kubectl apply -f k8s/` creates mounts and accounts before the application itself, in any namespace."""
    assert list(manifests)[-1] == "SparkApplication/winnow-1"
    assert not [name for name, document in manifests.items() if "namespace" in document["metadata"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("place", ["manifests", "deployment"])
def test_native_manifests_are_valid(place: str, version: str, request: pytest.FixtureRequest) -> None:
    """Each manifest of a native kind has only known fields, and all required ones."""
    found: dict[str, Document] = request.getfixturevalue(place)
    native = [document for document in found.values() if document["kind"] != CUSTOM]
    assert len(native) >= 8
    for document in native:
        kubernetes_validate.validate(document, version, strict=True)


def test_the_newest_schemas_are_used() -> None:
    """The schemas are the newest that the installed kubernetes-validate has."""
    newest = kubernetes_validate.latest_version()
    assert newest.startswith(VERSIONS[-1])


def test_native_typo_is_found(manifests: dict[str, Document]) -> None:
    """A misspelt field of a native kind is invalid."""
    planted = copy.deepcopy(manifests["Role/winnow-driver"])
    planted["rules"][0]["verb"] = planted["rules"][0]["verbs"]
    with pytest.raises(kubernetes_validate.ValidationError, match="verb"):
        kubernetes_validate.validate(planted, VERSIONS[-1], strict=True)


def strict(schema: Document) -> Document:
    """
    Rewrite a schema of a CRD as JSON Schema that allows no other fields.

    The API server silently prunes unknown fields and has its own extension for "integer or string".
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
    """Make a validator from the operator's CRD."""
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
    """List the violations of the CRD."""
    return [f"{error.json_path}: {error.message}" for error in operator.iter_errors(document)]


def test_application_is_valid(operator: Any, manifests: dict[str, Document]) -> None:
    """The SparkApplication has only fields that the operator knows, and all required ones."""
    assert problems(operator, manifests["SparkApplication/winnow-1"]) == []


@pytest.mark.parametrize(
    "values",
    [
        {"suspend": True, "generation": 7},
        {"image": {"pullSecrets": ["registry"]}, "driver": {"cpuLimit": "2500m"}},
        {"sparkConf": {"spark.locality.wait": "1s"}, "executor": {"instances": 1, "cpuRequest": 1}},
    ],
)
def test_every_application_of_the_chart_is_valid(operator: Any, values: dict[str, Any]) -> None:
    """The application stays valid with other values."""
    (rendered,) = documents_in(render(values)["sparkapplication.yaml"])
    assert problems(operator, rendered) == []


def test_application_errors_are_found(operator: Any, manifests: dict[str, Document]) -> None:
    """Misspelt fields, missing fields and invalid values are found at any depth."""
    planted = copy.deepcopy(manifests["SparkApplication/winnow-1"])
    planted["spec"]["driver"]["memroy"] = planted["spec"]["driver"].pop("memory")
    planted["spec"]["volumes"] = [{"name": "v", "emptydir": {}}]
    planted["spec"]["executor"]["secrets"] = [{"name": "s", "path": "/s"}]
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


@pytest.mark.parametrize("place", ["manifests", "deployment"])
def test_nothing_outlives_a_pod(place: str, request: pytest.FixtureRequest) -> None:
    """There is no checkpoint, no claim and no lasting volume: Kafka's offsets are the only state."""
    found_manifests: dict[str, Document] = request.getfixturevalue(place)
    assert not [name for name in found_manifests if name.startswith("PersistentVolumeClaim")]
    for kind, document in found_manifests.items():
        found = keys_and_values(document)
        assert not LASTING_VOLUMES & {key for key, _ in found}, kind
        assert not [key for key, _ in found if "checkpoint" in key.lower()], kind
        assert not [value for _, value in found if isinstance(value, str) and "checkpoint" in value.lower()], kind


@pytest.mark.parametrize("place", ["manifests", "deployment"])
def test_every_referenced_name_exists(place: str, pods: dict[str, Document], request: pytest.FixtureRequest) -> None:
    """Another manifest creates each object that a pod uses, except the Secret, which must already exist."""
    found: dict[str, Document] = request.getfixturevalue(place)
    for pod in pods.values():
        maps = {volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if "configMap" in volume}
        assert {f"ConfigMap/{name}" for name in maps - {"winnow-1-spark"}} <= found.keys()
        assert f"ServiceAccount/{pod['spec']['serviceAccountName']}" in found
