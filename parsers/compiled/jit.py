"""Numba's decorators with the options of all kernels: without the GIL, and with a disk cache if possible."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, cast

import numba
from numba.extending import intrinsic

P = ParamSpec("P")


def kernel(signature: str) -> Callable[[Callable[P, object]], Callable[P, int]]:
    """
    Return a decorator that compiles a function when it is defined, or loads it from Numba's cache.

        signature: the types of the result and the arguments in Numba's notation: `int64(int64[::1])`.
    """

    def compiled(function: Callable[P, object]) -> Callable[P, int]:
        try:
            return cast("Callable[P, int]", numba.njit(signature, nogil=True, cache=True)(function))
        except Exception:  # noqa: BLE001 - no cache folder, a full disk, a damaged file: then compile without a cache
            return cast("Callable[P, int]", numba.njit(signature, nogil=True)(function))

    return compiled


def inlined(function: Callable[..., object]) -> Callable[..., Any]:
    """Compile a function into each kernel that calls it. LLVM alone would leave most calls in place."""
    return cast("Callable[..., Any]", numba.njit(nogil=True, forceinline=True)(function))


def instruction(signature: object) -> Callable[[Callable[..., object]], Callable[..., int]]:
    """
    Return a decorator that makes a function that builds LLVM instructions callable from kernels.

    The function takes LLVM's builder and the values of the arguments; callers pass only the arguments.

        signature: Numba's types of the result and the arguments: `types.int64(types.int64)`.
    """

    def built(function: Callable[..., object]) -> Callable[..., int]:
        @wraps(function)  # Numba reads the names of the arguments
        def typed(_context: object, *_types: object) -> object:
            return signature, lambda _context, builder, _signature, values: function(builder, *values)

        return cast("Callable[..., int]", intrinsic(typed))

    return built
