"""How kernels are compiled: without the interpreter lock, and kept in Numba's cache where there is room for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
from numba.extending import intrinsic as _intrinsic

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(signature: str) -> Callable[[Function], Function]:
    """Compile a function for these types at once, or take it from the cache."""

    def compiled(function: Function) -> Function:
        try:
            return cast("Function", numba.njit(signature, nogil=True, cache=True)(function))
        except Exception:  # noqa: BLE001 - no place for a cache, a full disk, a damaged file: it only costs the seconds to compile
            return cast("Function", numba.njit(signature, nogil=True)(function))

    return compiled


def inlined(function: Function) -> Function:
    """Compile a function as a part of the kernels that call it."""
    return cast("Function", numba.njit(nogil=True)(function))


def intrinsic(function: Callable[..., object]) -> Callable[..., int]:
    """Make an instruction of what the function builds; the typing context is not an argument of the instruction."""
    return cast("Callable[..., int]", _intrinsic(function))
