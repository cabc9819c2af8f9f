"""Which implementation of the rules a process uses: the compiled kernels, or plain Python where Numba is missing."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from importlib import import_module

from parsers.errors import ParserOptionError


class Engine(StrEnum):
    """The two implementations; they give the same outcome for every byte."""

    COMPILED = "compiled"
    PLAIN = "plain"


def choose(wanted: str) -> Engine:
    """
    Give the engine for the option `engine`: `auto`, `compiled` or `plain`.

    Raises:
        ParserOptionError: there is no such engine, or it is `compiled` and Numba is not usable.
    """
    if wanted not in ("auto", *Engine):
        msg = f"engine must be auto, compiled or plain, not {wanted!r}"
        raise ParserOptionError(msg)
    if wanted == Engine.PLAIN:
        return Engine.PLAIN
    problem = _why_not_compiled()
    if problem and wanted == Engine.COMPILED:
        msg = f"engine is compiled, but Numba is not usable here ({problem}): install numba, or write engine: auto"
        raise ParserOptionError(msg)
    return Engine.PLAIN if problem else Engine.COMPILED


@cache
def _why_not_compiled() -> str:
    try:
        import_module("parsers.kernel")  # takes half a second, and seconds more where nothing is cached
    except (ImportError, OSError) as error:  # OSError is what a broken LLVM library raises
        return str(error)
    return ""
