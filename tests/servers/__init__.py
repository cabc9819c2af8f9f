"""Real servers for the offset stores, as processes that a test starts and stops, without Docker."""
