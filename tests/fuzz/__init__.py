"""Searches for input that breaks the parsers, the configuration or the offsets' metadata: for `make fuzz`."""
