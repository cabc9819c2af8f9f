"""
Renders the chart with the real Helm engine, and the plain manifests from it.

    python -m tests.deploy.chart        # what `make manifests` runs: rewrites k8s/*.yaml and k8s/deployment/*.yaml
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import helm_python

ROOT = Path(__file__).parents[2]
CHART = ROOT / "k8s/winnow"
ALERTS = ROOT / "docker/alerts.yaml"
PLAIN = {"SparkApplication": ROOT / "k8s", "Deployment": ROOT / "k8s/deployment"}
"""The folder of each shape's plain manifests."""

NOTES = "NOTES.txt"
HEADER = "# Rendered from k8s/winnow with its default values, by `make manifests`: change those, or use Helm.\n"


def render(values: Mapping[str, Any] | None = None, *, name: str = "winnow", revision: int = 1) -> dict[str, str]:
    """
    Render the chart and return each file that is not empty.

    Raises:
        helm_python.HelmError: the schema rejects the values, or a template fails.
    """
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(dict(values or {}))
        found = chart.render(
            dict(values or {}), name=name, namespace="default", revision=revision, is_upgrade=revision > 1
        )
    return {Path(path).name: text.strip() + "\n" for path, text in sorted(found.items()) if text.strip()}


def plain(shape: str) -> dict[str, str]:
    """Render what `kubectl apply` takes for a shape, by file name and with default values."""
    files = render({"shape": shape})
    return {name: HEADER + text for name, text in files.items() if name != NOTES}


def write_plain() -> None:
    """Rewrite the plain manifests and the chart's copy of the alerts. A chart contains only files of its own folder."""
    shutil.copy(ALERTS, CHART / "files")
    for shape, folder in PLAIN.items():
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.yaml"):
            old.unlink()
        for name, text in plain(shape).items():
            (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    write_plain()
