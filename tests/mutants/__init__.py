"""Measures the strength of the unit tests: whether they notice small faults put into the product."""
