"""
Simulated schedules: the driver, the tasks and their lanes as they are, on a model of Kafka and a clock that a seed rules.

The seam is confluent_kafka: everything above it is the product (`app/kafka` too), everything below it is a model.
"""
