"""A real Kafka without Docker: jars, servers, and a supervisor so that no process outlives its parent."""
