"""The work of a task: consume, parse, produce, commit. Independent of Spark, so that unit tests run it with fakes."""
