"""Builds the image by Debian's tools and prints how large it is, part by part: `python -m tests.containers`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.containers.contract import ROOT
from tests.containers.debian import built, why_not_debian

PACKAGES = "opt/venv/lib/python3.11/site-packages"
PARTS = {
    "the whole file system": "",
    "Debian and Python": "usr",
    "  of it Java": "usr/lib/jvm",
    "Python packages": PACKAGES,
    "  of them PySpark's jars": f"{PACKAGES}/pyspark/jars",
}


def occupied(folder: Path) -> int:
    """Return the bytes that a folder takes on disk, each file once, as `du` does."""
    found = {(at.st_dev, at.st_ino): at.st_blocks * 512 for at in map(os.lstat, (folder, *folder.rglob("*")))}
    return sum(found.values())


def main() -> None:
    """Print the sizes in MB."""
    if trouble := why_not_debian():
        sys.exit(trouble)
    with built(ROOT) as folder:
        for name, part in PARTS.items():
            print(f"{occupied(folder / 'rootfs' / part) / 1e6:7,.0f} MB  {name}")
        jars = list((folder / "rootfs" / PACKAGES / "pyspark/jars").iterdir())
        print(f"{len(jars):7} jars")


if __name__ == "__main__":
    main()
