"""Offset stores: one contract, and a file for each store."""
