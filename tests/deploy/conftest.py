"""The deployed files, read once: the Dockerfile's last stage, the Compose file's services and the manifests."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from kubernetes_validate import utils as kubernetes

Document = dict[str, Any]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
DOCKERFILE = ROOT / "docker/Dockerfile"
ENTRYPOINT = ROOT / "docker/entrypoint.sh"
COMPOSE = ROOT / "docker/compose.yaml"
CRD = ROOT.parent / "shared/crds/sparkapplication-crd-v2.5.2.yaml"
CUSTOM = "SparkApplication"
"""The kind that this CRD defines."""
VERSIONS = [f"1.{minor}" for minor in range(30, 38)]
"""The versions of Kubernetes whose schemas the manifests must match."""


def script(name: str) -> ModuleType:
    """Load a script of `docker/` as a module, without running it."""
    spec = importlib.util.spec_from_file_location(f"docker_{name}", ROOT / f"docker/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documents(path: Path) -> list[Document]:
    """Read every YAML document of a file."""
    return documents_in(path.read_text("utf-8"))


def documents_in(text: str) -> list[Document]:
    """Read every YAML document of a text."""
    return [document for document in yaml.safe_load_all(text) if document]


def by_name(found: Iterable[Document]) -> dict[str, Document]:
    """Index the documents by kind and name, which must be unique."""
    named = [(f"{document['kind']}/{document['metadata']['name']}", document) for document in found]
    assert len(named) == len(dict(named))
    return dict(named)


@pytest.fixture(scope="module", autouse=True)
def _schemas_of_kubernetes_are_read_once() -> Iterator[None]:
    """Cache the Kubernetes definitions, which kubernetes-validate would read again for each object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes, "schema_contents", cache(kubernetes.schema_contents))
        yield


@pytest.fixture(scope="session")
def final_stage() -> str:
    """Return the Dockerfile's final stage, with continued lines joined."""
    return re.split(r"^FROM ", DOCKERFILE.read_text("utf-8").replace("\\\n", ""), flags=re.MULTILINE)[-1]


@pytest.fixture(scope="session")
def image_environment(final_stage: str) -> dict[str, str]:
    """Read the variables that the image sets."""
    words = [word for line in re.findall(r"^ENV (.*)$", final_stage, re.MULTILINE) for word in shlex.split(line)]
    return dict(word.split("=", 1) for word in words)


@pytest.fixture(scope="session")
def services() -> dict[str, Document]:
    """Read the services of the Compose file."""
    (document,) = documents(COMPOSE)
    found: dict[str, Document] = document["services"]
    return found


@pytest.fixture(scope="session")
def manifests() -> dict[str, Document]:
    """Read the plain manifests of a SparkApplication by kind and name, in the order in which kubectl applies them."""
    return by_name(document for path in sorted((ROOT / "k8s").glob("*.yaml")) for document in documents(path))


@pytest.fixture(scope="session")
def configuration(manifests: dict[str, Document]) -> str:
    """Return winnow.yaml as it is mounted."""
    return str(manifests["ConfigMap/winnow-1"]["data"]["winnow.yaml"])


@pytest.fixture(scope="session")
def application(manifests: dict[str, Document]) -> Document:
    """Return the SparkApplication's spec."""
    spec: Document = manifests["SparkApplication/winnow-1"]["spec"]
    return spec


@pytest.fixture(scope="session")
def deployment() -> dict[str, Document]:
    """Read the plain manifests of a Deployment by kind and name."""
    return by_name(document for path in (ROOT / "k8s/deployment").glob("*.yaml") for document in documents(path))


@pytest.fixture(params=["SparkApplication", "Deployment"])
def pods(request: pytest.FixtureRequest, application: Document, deployment: dict[str, Document]) -> dict[str, Document]:
    """Return metadata and spec of the driver and executor pods in each shape."""
    if request.param == "SparkApplication":
        return {role: application[role]["template"] for role in ("driver", "executor")}
    return {
        "driver": deployment["Deployment/winnow"]["spec"]["template"],
        "executor": yaml.safe_load(deployment["ConfigMap/winnow-1-spark"]["data"]["executor.yaml"]),
    }


@pytest.fixture(params=["SparkApplication", "Deployment"])
def spark_conf(
    request: pytest.FixtureRequest, application: Document, deployment: dict[str, Document]
) -> dict[str, str]:
    """Return Spark's properties as each shape sets them."""
    if request.param == "SparkApplication":
        found: dict[str, str] = application["sparkConf"]
        return found
    lines = deployment["ConfigMap/winnow-1-spark"]["data"]["spark.properties"].splitlines()
    return dict(line.split("=", 1) for line in lines)
