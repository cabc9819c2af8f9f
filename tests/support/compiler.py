"""Compiles C sources of the tests once, into the user's cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from app.embedded.jars import cache_folder
from app.errors import NotUsable


def compiled(source: Path, *arguments: str) -> Path:
    """
    Return the path of what a C file is compiled to with these arguments. Compile it first if either has changed.

    Raises:
        NotUsable: there is no C compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        message = "a C compiler (cc) is needed"
        raise NotUsable(message)
    digest = hashlib.sha256(source.read_bytes() + "\0".join(arguments).encode()).hexdigest()[:16]
    result = cache_folder() / f"{source.stem}-{digest}"
    if not result.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".compiled-") as folder:
            made = Path(folder, source.stem)
            subprocess.run([compiler, "-Wall", "-Wextra", str(source), *arguments, "-o", str(made)], check=True)
            made.rename(result)
    return result
