"""The kernels that Numba compiles, and the choice of an engine. Parsers import this package; it imports no parser."""
