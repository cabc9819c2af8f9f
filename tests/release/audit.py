"""Known vulnerabilities of the packages in the locks, as far as a registry reports them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.release.shipped import ROOT

LOCKS = [ROOT / f"{name}.lock" for name in ("docker/image", "docker/build", "tests/requirements", "docs/requirements")]
CLEAN, VULNERABLE, UNANSWERED = 0, 1, 3


def audit(locks: Sequence[Path] = LOCKS) -> int:
    """
    Look up each package of the locks in the registry, and print the result.

    Returns:
        0: each package was found, without known vulnerabilities.
        1: some have known vulnerabilities.
        3: the registry has no information on some packages.
    """
    files = [word for lock in locks for word in ("--requirement", str(lock))]
    command = [sys.executable, "-m", "pip_audit", *files, "--disable-pip", "--no-deps", "--format", "json"]
    done = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        print(f"pip-audit ended with {done.returncode}:\n{done.stderr}", file=sys.stderr)
        return UNANSWERED
    code, words = verdict(report)
    print(*words, sep="\n")
    return code


def verdict(report: dict[str, Any]) -> tuple[int, list[str]]:
    """Return the exit code for a report of pip-audit, and the lines to print."""
    packages = report["dependencies"]
    found = [
        f"{package['name']} {package['version']}: {flaw['id']} ({', '.join(flaw['aliases'])}), "
        f"mended in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for package in packages
        for flaw in package.get("vulns", [])
    ]
    unknown = sorted({package["name"] for package in packages if "skip_reason" in package})
    if unknown:
        found.append(
            f"NOT AUDITED: the registry that is reached here tells nothing of {len(unknown)} packages of "
            f"{len(packages)}, {unknown[0]} for one; run this where PyPI's JSON interface answers for each version"
        )
    if any("vulns" in package and package["vulns"] for package in packages):
        return VULNERABLE, found
    return (UNANSWERED, found) if unknown else (CLEAN, [f"{len(packages)} packages: nothing is known against them"])
