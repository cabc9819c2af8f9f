"""The plain backend: each record is one of confluent-kafka's Python objects."""
