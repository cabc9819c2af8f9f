"""The choice between the compiled kernels and plain Python, the fallback without Numba."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from importlib import import_module

from parsers.errors import ParserOptionError


class Engine(StrEnum):
    """The two implementations of every rule; both give the same result for the same bytes."""

    COMPILED = "compiled"
    PLAIN = "plain"


def choose(wanted: str) -> Engine:
    """
    Return the engine for the option `engine`: `compiled`, `plain`, or `auto` for compiled if Numba works here.

    Raises:
        ParserOptionError: `wanted` is none of these, or it is `compiled` and Numba cannot be imported.
    """
    if wanted not in ("auto", *Engine):
        raise ParserOptionError(f"engine must be auto, compiled or plain, not {wanted!r}")
    if wanted == Engine.PLAIN:
        return Engine.PLAIN
    problem = _why_not_compiled()
    if problem and wanted == Engine.COMPILED:
        msg = f"engine is compiled, but Numba is not usable here ({problem}): install numba, or write engine: auto"
        raise ParserOptionError(msg)
    return Engine.PLAIN if problem else Engine.COMPILED


@cache
def _why_not_compiled() -> str:
    """Import the kernels, compiling them if they are not cached; return what went wrong, or an empty text."""
    try:
        import_module("parsers.compiled.kernels")
    except Exception as error:  # noqa: BLE001 - no Numba, a broken LLVM, or a version that compiles kernels differently
        return str(error) or type(error).__name__
    return ""
