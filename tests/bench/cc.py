"""Compiles the benchmark's C program once, into the user's cache, against the librdkafka of confluent-kafka's wheel."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import confluent_kafka

from app.embedded.jars import cache_folder
from app.errors import NotUsable

SOURCE = Path(__file__).with_name("split.c")


def split_program() -> Path:
    """
    Return the path of the program. Compile it first if it changed.

    Raises:
        NotUsable: there is no C compiler, or the wheel of confluent-kafka has no librdkafka.
    """
    compiler = shutil.which("cc")
    libraries = Path(confluent_kafka.__file__).parent.with_suffix(".libs")
    library = next(libraries.glob("librdkafka-*.so*"), None)
    if compiler is None or library is None:
        message = "a C compiler (cc) is needed" if library else f"there is no librdkafka in {libraries}"
        raise NotUsable(message)
    digest = hashlib.sha256(SOURCE.read_bytes() + str(library).encode()).hexdigest()[:16]
    program = cache_folder() / f"bench-split-{digest}"
    if not program.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".bench-") as folder:
            made = Path(folder, "split")
            flags = ["-O3", "-march=native", "-Wall", "-Wextra", f"-Wl,-rpath,{libraries}"]
            subprocess.run([compiler, *flags, str(SOURCE), "-o", str(made), str(library)], check=True)
            made.rename(program)
    return program
