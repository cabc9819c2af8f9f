"""Parsers: raw lines in, cleansed lines and rejects out; pure, and nothing of app, Spark or Kafka in them."""
