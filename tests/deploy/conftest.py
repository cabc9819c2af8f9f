"""The deployed files, read once: the Dockerfile's last stage, the Compose file's services and the manifests."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

Document = dict[str, Any]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
DOCKERFILE = ROOT / "docker/Dockerfile"
ENTRYPOINT = ROOT / "docker/entrypoint.sh"
COMPOSE = ROOT / "docker/compose.yaml"
CRD = ROOT.parent / "shared/crds/sparkapplication-crd-v2.5.2.yaml"


def documents(path: Path) -> list[Document]:
    """Read every YAML document of a file."""
    return [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document]


@pytest.fixture(scope="session")
def final_stage() -> str:
    """Return the Dockerfile's stage that becomes the image, with continued lines joined."""
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
    """Read the manifests by their kinds, in the order in which kubectl applies them; there is one of each kind."""
    found = [document for path in sorted((ROOT / "k8s").glob("*.yaml")) for document in documents(path)]
    by_kind = {document["kind"]: document for document in found}
    assert len(found) == len(by_kind)
    return by_kind


@pytest.fixture(scope="session")
def application(manifests: dict[str, Document]) -> Document:
    """Return the SparkApplication's spec."""
    spec: Document = manifests["SparkApplication"]["spec"]
    return spec
