"""`winnow demo`: an embedded real Kafka, generated lines, and a verification that shares no code with the service."""
