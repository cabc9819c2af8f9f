"""The real servers that offset stores talk to, as processes that a test starts and stops, without Docker."""
