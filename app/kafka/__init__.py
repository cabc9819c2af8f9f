"""Everything that speaks to Kafka: the only importer of confluent_kafka."""
