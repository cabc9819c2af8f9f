"""Any configuration file either loads or raises a named error."""

from __future__ import annotations

import tempfile
from pathlib import Path

from app.config import load
from app.errors import ConfigError


def check_configuration(content: bytes) -> bool:
    """Read a file with this content and return whether it is valid. Fail unless every problem is described in words."""
    with tempfile.TemporaryDirectory(prefix="winnow-fuzz-") as folder:
        file = Path(folder) / "winnow.yaml"
        file.write_bytes(content)
        try:
            load(file, environ={})
        except ConfigError as error:
            problems = error.problems
        else:
            return True
    assert problems, content
    assert all(map(str.strip, problems)), content
    return False
