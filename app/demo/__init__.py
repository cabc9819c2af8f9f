"""`winnow demo`: an embedded real Kafka, generated lines, and an audit that shares no code with the service."""
