"""Winnow: exactly-once cleansing of Kafka log topics on Spark."""

__version__ = "0.3.0"
