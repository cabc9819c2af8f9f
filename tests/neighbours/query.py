"""
A Structured Streaming query with the offset listener. Runs on PySpark 4.0.0 until its standard input is closed.

Usage: python query.py OPTIONS JAR...

OPTIONS are JSON: for the query, `bootstrap`, `sources` (a list of values for Spark's option `subscribe`), `checkpoint`
and `name`; for the listener, `group`, `kafka` and `patience` (how many seconds its end may take); `most` optionally
limits the records that a batch reads from a source. It prints each progress as JSON, and finally whether everything was saved.
"""

from __future__ import annotations

import json
import os
import sys
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent

from app.spark.listener import OffsetListener


class PrintingListener(OffsetListener):
    """Prints each progress as JSON, too; for a listener of its own, a busy Spark would translate each event once more."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        """Print what the offset listener sees."""
        print(event.progress.json, flush=True)
        super().onQueryProgress(event)


def main() -> None:
    """Run the query until standard input is closed."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    spark = session(sys.argv[2:])
    listener = PrintingListener(options["group"], options["kafka"], query=options["name"])
    spark.streams.addListener(listener)
    query = (
        rows(spark, options)
        .writeStream.format("noop")
        .queryName(options["name"])
        .option("checkpointLocation", options["checkpoint"])
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    sys.stdin.read()
    query.stop()
    print(json.dumps({"saved": listener.close(options["patience"])}), flush=True)


def session(jars: list[str]) -> SparkSession:
    """Start a small Spark with the connector on its class path."""
    submit = f"--driver-class-path {':'.join(jars)} --driver-memory 512m pyspark-shell"
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit
    return SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()


def rows(spark: SparkSession, options: dict[str, Any]) -> DataFrame:
    """Return the values of all sources, plus a non-Kafka source that gives each batch some data."""
    kafka = {"kafka.bootstrap.servers": options["bootstrap"], "startingOffsets": "earliest"}
    if "most" in options:
        kafka["maxOffsetsPerTrigger"] = str(options["most"])
    sources = [
        spark.readStream.format("kafka").options(**kafka, subscribe=topics).load().selectExpr("cast(value as string)")
        for topics in options["sources"]
    ]
    rate = spark.readStream.format("rate").option("rowsPerSecond", 10).load().selectExpr("cast(value as string)")
    return reduce(DataFrame.union, [*sources, rate])


if __name__ == "__main__":
    main()
