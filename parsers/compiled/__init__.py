"""Loops compiled by Numba, and the choice of doing without them. Imports no parser: the parsers import this."""
