"""Runs beside the data: consume, parse, produce, commit. Free of Spark, so that a unit test runs it with fakes."""
