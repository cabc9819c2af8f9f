"""Installs packages of a third party, which Winnow finds by their entry points."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, name: str, source: str, entry_points: str) -> None:
    """Install a distribution that consists of one module. The folder must be in `sys.path`."""
    (folder / f"{name}.py").write_text(source)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)
