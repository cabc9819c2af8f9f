"""Compiles the benchmark's C program against the librdkafka of confluent-kafka's wheel."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka

from app.errors import NotUsable
from tests.support.compiler import compiled


def split_program() -> Path:
    """
    Return the path of the program. Compile it first if it changed.

    Raises:
        NotUsable: there is no C compiler, or the wheel of confluent-kafka has no librdkafka.
    """
    libraries = Path(confluent_kafka.__file__).parent.with_suffix(".libs")
    library = next(libraries.glob("librdkafka-*.so*"), None)
    if library is None:
        message = f"there is no librdkafka in {libraries}"
        raise NotUsable(message)
    source = Path(__file__).with_name("split.c")
    return compiled(source, str(library), "-O3", "-march=native", f"-Wl,-rpath,{libraries}")
