"""Numba's decorators with the options of all kernels: without the GIL, and with a disk cache if possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
from numba.extending import intrinsic as _intrinsic

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(signature: str) -> Callable[[Function], Function]:
    """
    Return a decorator that compiles a function when it is defined, or loads it from Numba's cache.

        signature: the types of the result and the arguments in Numba's notation: `int64(int64[::1])`.
    """

    def compiled(function: Function) -> Function:
        try:
            return cast("Function", numba.njit(signature, nogil=True, cache=True)(function))
        except Exception:  # noqa: BLE001 - no cache folder, a full disk, a damaged file: then compile without a cache
            return cast("Function", numba.njit(signature, nogil=True)(function))

    return compiled


def inlined(function: Function) -> Function:
    """Compile a function into each kernel that calls it. LLVM alone would leave most calls in place."""
    return cast("Function", numba.njit(nogil=True, forceinline=True)(function))


def intrinsic(function: Callable[..., object]) -> Callable[..., int]:
    """
    Make a function that builds LLVM instructions callable from kernels.

    The function takes the typing context and the arguments' types; callers pass only the arguments.
    """
    return cast("Callable[..., int]", _intrinsic(function))
