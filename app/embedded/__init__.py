"""A real Kafka without Docker: its jars, its servers, and processes that never outlive whoever started them."""
