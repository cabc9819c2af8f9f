"""The kernels that Numba compiles, and the choice of an engine. Parsers import this package, not the reverse."""
