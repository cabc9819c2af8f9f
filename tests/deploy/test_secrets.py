"""Secrets are in one manifest only, and are read from mounted files."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.deploy.conftest import ROOT, Document


def test_secrets_are_only_in_the_secret(manifests: dict[str, Document]) -> None:
    """No value of the Secret appears in Spark's settings, in a configuration or in the Compose file."""
    values = [value.strip() for value in manifests["Secret"]["stringData"].values()]
    files = [path for folder in ("k8s", "docker") for path in (ROOT / folder).iterdir() if path.name != "secret.yaml"]
    assert all(len(value) > 8 for value in values)
    assert len(files) > 3
    for path in files:
        text = path.read_text("utf-8")
        assert not [
            value for value in values if any(line.strip() in text for line in value.splitlines() if "-----" not in line)
        ]


def test_secrets_are_read_from_mounted_files(manifests: dict[str, Document], application: Document) -> None:
    """Each path below the Secret's mount is one of its keys, and no setting holds a password itself."""
    secret = manifests["Secret"]["stringData"].keys()
    kafka = yaml.safe_load(manifests["ConfigMap"]["data"]["winnow.yaml"])["kafka"]
    named = [*kafka.values(), *application["sparkConf"].values()]
    paths = {value for value in named if isinstance(value, str) and value.startswith("/etc/winnow/secrets/")}
    assert {Path(path).name for path in paths} == set(secret)
    assert not [key for key in kafka if "password" in key and not key.endswith(".file")]
    shown = {key for key in application["sparkConf"] if re.search("secret|password|token", key)}
    assert all(key.endswith(".file") for key in shown)
