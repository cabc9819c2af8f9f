"""
Java options that halve the start of a test broker: `python -m tests.support.java` prepares them.

A JVM loads and verifies some 6,000 classes at each start of Kafka. An archive of them (JEP 350) saves that work.
"""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition

from app.embedded.broker import Broker
from app.embedded.jars import KAFKA, cache_folder
from tests.support import spark
from tests.support.spark import QUICK
from tests.support.waiting import PATIENCE

ARCHIVE = cache_folder() / f"{KAFKA.folder}.jsa"


def quick_java() -> tuple[str, ...]:
    """Return the Java options for a broker."""
    return (*QUICK, f"-XX:SharedArchiveFile={ARCHIVE}") if ARCHIVE.exists() else QUICK


def archive() -> None:
    """Run a broker through its main functions, and archive the classes it has loaded when it stops."""
    with Broker(java=(*QUICK, f"-XX:ArchiveClassesAtExit={ARCHIVE}")) as broker:
        topic, kafka = broker.create_topic("archived"), {"bootstrap.servers": broker.bootstrap, "group.id": "archived"}
        consumer = Consumer({**kafka, "auto.offset.reset": "earliest"})
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "archived"})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        producer.produce(topic, b"a line")
        offsets = [TopicPartition(topic, 0, 0)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE)
        producer.commit_transaction(PATIENCE)
        consumer.subscribe([topic])
        consumer.consume(1, PATIENCE)
        consumer.close()
        del producer
        broker.stop()


if __name__ == "__main__":
    archive()
    spark.archive()
