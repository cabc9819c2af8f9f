"""The plain backend: records as confluent-kafka's Python objects."""
