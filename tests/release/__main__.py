"""
Builds a release and reports its contents.

Usage: python -m tests.release build|sbom|licences|audit [--into FOLDER]
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from app import __version__
from tests.release.audit import audit
from tests.release.build import release
from tests.release.licences import licences, not_allowed
from tests.release.sbom import sbom
from tests.release.shipped import ROOT, components


def main() -> int:
    """Run the command line."""
    options = argparse.ArgumentParser(prog="python -m tests.release", description=(__doc__ or "").splitlines()[1])
    options.add_argument("what", choices=["build", "sbom", "licences", "audit"])
    options.add_argument("--into", type=Path, default=ROOT / "dist", metavar="FOLDER", help="default: dist")
    chosen = options.parse_args()
    match chosen.what:
        case "build":
            print(*release(chosen.into, epoch()), sep="\n")
        case "sbom":
            chosen.into.mkdir(parents=True, exist_ok=True)
            file = chosen.into / f"winnow-{__version__}.cdx.json"
            file.write_text(sbom(found := components(), epoch()), "utf-8")
            print(f"{file}: {len(found)} components")
        case "licences":
            for each in components():
                print(f"{each.kind:8} {each!s:60} {' OR '.join(licences(each))}")
            print(*(refused := not_allowed(components())), sep="\n")
            return 1 if refused else 0
        case "audit":
            return audit()
    return 0


def epoch() -> int:
    """Return the time of the release: SOURCE_DATE_EPOCH, or that of the last commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


raise SystemExit(main())
