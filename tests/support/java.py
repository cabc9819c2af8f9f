"""
Options that let Kafka and Spark start with half the work in tests: `python -m tests.support.java` prepares them.

A JVM reads and checks some 6,000 classes at each start. An archive of them (JEP 350) saves that.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark import SparkContext

from app.embedded.broker import Broker
from app.embedded.jars import KAFKA, cache_folder
from tests.support.waiting import PATIENCE

QUICK = "-XX:TieredStopAtLevel=1"
"""For a program that lives for minutes: optimising its code takes more time than it saves."""
ARCHIVE = cache_folder() / f"{KAFKA.folder}.jsa"
SPARK_ARCHIVE = Path(sys.prefix, "spark.jsa")
"""Beside its jars: an archive knows their paths. With other ones, or other folders, Java goes without it."""
WITH_OR_WITHOUT = "-Xlog:cds=off -Xlog:class+path=off"


def quick_java() -> tuple[str, ...]:
    """Return options of Java for a broker."""
    return (QUICK, f"-XX:SharedArchiveFile={ARCHIVE}") if ARCHIVE.exists() else (QUICK,)


def quick_spark() -> dict[str, str]:
    """Return the environment of a process that starts Spark."""
    archive = f"-XX:SharedArchiveFile={SPARK_ARCHIVE} {WITH_OR_WITHOUT}" if SPARK_ARCHIVE.exists() else ""
    every_jvm = f"{QUICK} -XX:+UseSerialGC"
    return {"SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": every_jvm, "SPARK_SUBMIT_OPTS": archive}


def archive_spark() -> None:
    """Let Spark run a job, and archive the classes that it has loaded when it stops."""
    os.environ |= quick_spark() | {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={SPARK_ARCHIVE} {WITH_OR_WITHOUT}"}
    spark = SparkContext("local[2]", "archived")
    spark.parallelize(range(4), 4).map(str).collect()
    spark.stop()


def archive_kafka() -> None:
    """Let a broker do a little of everything, and archive the classes that it has loaded when it stops."""
    with Broker(java=(QUICK, f"-XX:ArchiveClassesAtExit={ARCHIVE}")) as broker:
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
    archive_spark()
    archive_kafka()
