"""No manifest contains a secret; secrets are read from mounted files."""

from __future__ import annotations

import re

import yaml

from tests.deploy.chart import render
from tests.deploy.conftest import ROOT, Document


def test_no_manifest_is_a_secret() -> None:
    """`kubectl apply -f k8s/` and the chart never overwrite a Secret, not even with placeholders."""
    texts = [path.read_text("utf-8") for path in (ROOT / "k8s").rglob("*.yaml")]
    assert len(texts) > 10
    assert not [text for text in texts if re.search("^kind: Secret$", text, re.MULTILINE)]


def test_secrets_are_read_from_mounted_files(configuration: str, spark_conf: dict[str, str]) -> None:
    """No setting contains a password, and all files are in the Secret's folder."""
    kafka = yaml.safe_load(configuration)["kafka"]
    named = [*kafka.values(), *spark_conf.values()]
    paths = {value for value in named if isinstance(value, str) and value.startswith("/etc/winnow/secrets/")}
    assert {path.rsplit("/", 1)[1] for path in paths} == {"sasl.password", "ca.crt", "spark.auth"}
    assert not [key for key in kafka if "password" in key and not key.endswith(".file")]
    shown = {key for key in spark_conf if re.search("secret|password|token", key)}
    assert all(key.endswith(".file") for key in shown)


def test_the_secret_is_mounted_as_files(pods: dict[str, Document]) -> None:
    """Driver and executors get the Secret's keys as files, and never in the environment."""
    for pod in pods.values():
        (container,) = pod["spec"]["containers"]
        assert {"name": "secrets", "secret": {"secretName": "winnow-secrets"}} in pod["spec"]["volumes"]
        assert {"name": "secrets", "mountPath": "/etc/winnow/secrets", "readOnly": True} in container["volumeMounts"]
        assert "envFrom" not in container
        assert not [each for each in container.get("env", []) if "secretKeyRef" in each.get("valueFrom", {})]


def test_a_secret_store_can_make_the_secret() -> None:
    """An ExternalSecret creates the Secret that the pods mount, from the configured store."""
    external = {
        "enabled": True,
        "store": {"name": "vault"},
        "data": {"spark.auth": {"key": "winnow", "property": "auth"}},
    }
    found = yaml.safe_load(render({"secret": {"name": "from-vault", "external": external}})["externalsecret.yaml"])
    assert found["spec"]["target"]["name"] == "from-vault"
    assert found["spec"]["secretStoreRef"] == {"kind": "SecretStore", "name": "vault"}
    assert found["spec"]["data"] == [{"secretKey": "spark.auth", "remoteRef": {"key": "winnow", "property": "auth"}}]
