"""Builds the image with Debian's tools and prints the size of each part: `python -m tests.containers`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.containers.contract import ROOT
from tests.containers.debian import built, why_not_debian, with_image

PACKAGES = "opt/venv/lib/python3.11/site-packages"
PARTS = {
    "the whole file system": "",
    "Debian and Python": "usr",
    "  of it Java": "usr/lib/jvm",
    "Python packages": PACKAGES,
    "  of them PySpark's jars": f"{PACKAGES}/pyspark/jars",
}


def output(image: Path, *command: str) -> str:
    """Return the output of a command that sees the image's files in `rootfs`."""
    told = subprocess.run(with_image(image, *command), cwd=image, stdout=subprocess.PIPE, text=True, check=True)
    return told.stdout


def main() -> None:
    """Print the sizes in MB."""
    if trouble := why_not_debian():
        sys.exit(trouble)
    with built(ROOT) as image:
        for name, part in PARTS.items():
            size = output(image, "du", "--summarize", "--block-size=1", f"rootfs/{part}").split()[0]
            print(f"{int(size) / 1e6:7,.0f} MB  {name}")
        jars = output(image, "ls", f"rootfs/{PACKAGES}/pyspark/jars").split()
        print(f"{len(jars):7} jars")


if __name__ == "__main__":
    main()
