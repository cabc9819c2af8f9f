"""Writes configuration files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def file_of(config: str | Mapping[str, Any], folder: Path) -> Path:
    """Write a configuration, or its text, into a folder. Return the file."""
    file = folder / "winnow.yaml"
    file.write_text(config if isinstance(config, str) else json.dumps(config))  # JSON is YAML
    return file
