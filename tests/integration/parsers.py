"""A user's parser, installed as a package that the service finds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def installed(folder: Path, name: str, parser: str, source: str) -> Mapping[str, str]:
    """Install a module with a parser of this name in a folder. Return the environment in which it is found."""
    (folder / f"{name}.py").write_text(source)
    metadata = folder / f"{name}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[winnow.parsers]\n{name} = {name}:{parser}\n")
    return {"PYTHONPATH": str(folder)}
