"""Decides: what is read, by whom, from where. Never touches a record."""
