"""Builds a release, with equal bytes for equal sources: wheel, sdist, chart, image recipe, SBOM, hashes."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from app import __version__
from parsers.plugins import PRODUCT
from tests.release.sbom import sbom
from tests.release.shipped import ROOT, components

CHART = ROOT / "k8s/winnow"
# docker/Dockerfile and what it copies.
RECIPE = ["docker", "app", "parsers", "pyproject.toml", "README.md", "LICENSE", ".dockerignore"]
SUMS = "SHA256SUMS"


def release(folder: Path, epoch: int) -> list[Path]:
    """
    Build everything into a folder. Return its files, the list of hashes last.

    Args:
        folder: where to write. It is created if missing; files of other versions in it stay.
        epoch: the time of the release in seconds since the epoch, which every file in every archive gets.

    Raises:
        subprocess.CalledProcessError: hatchling or git failed; see stderr.
        Differs, Unknown: as `components` and `sbom` raise them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [
        *python(folder, epoch),
        archive(folder / f"winnow-{__version__}.tgz", tracked_files(CHART.parent, ["winnow"]), epoch),
        archive(folder / f"winnow-image-{__version__}.tar.gz", _recipe(), epoch),
        _written(folder / f"winnow-{__version__}.cdx.json", sbom(components(), epoch)),
    ]
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files)]
    return [*files, _written(folder / SUMS, "".join(sums))]


def python(folder: Path, epoch: int) -> list[Path]:
    """Build and return wheel and sdist."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder.resolve())]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    with tempfile.TemporaryDirectory(prefix="winnow-release-") as copy:
        sources(Path(copy))  # hatchling would include untracked files of a checkout
        subprocess.run(command, cwd=copy, env=environment, stdout=sys.stderr, check=True)
    name = f"{PRODUCT.replace('-', '_')}-{__version__}"
    return [folder / f"{name}-py3-none-any.whl", folder / f"{name}.tar.gz"]


def sources(folder: Path) -> None:
    """Copy the files that git tracks into a folder."""
    for name, file in tracked_files(ROOT, ["."]).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / name)


def archive(path: Path, files: Mapping[str, Path], epoch: int) -> Path:
    """
    Write a compressed archive that reveals nothing about this machine, and return its path.

    Args:
        path: where to write it.
        files: the files, by their names in the archive.
        epoch: the time of every file, in seconds since the epoch.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, file in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = file.stat().st_size, epoch
            entry.mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
            with file.open("rb") as source:
                tar.addfile(entry, source)
    path.write_bytes(gzip.compress(content.getvalue(), mtime=epoch))
    return path


def _recipe() -> dict[str, Path]:
    """Return the sources of the image, in a folder of their own."""
    return {f"winnow-image-{__version__}/{name}": file for name, file in tracked_files(ROOT, RECIPE).items()}


def tracked_files(root: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return the files below these names that git tracks. Others are no part of a release."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--", *names]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: root / name for name in listed.split("\0") if name}


def _written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path
