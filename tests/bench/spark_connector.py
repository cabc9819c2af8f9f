"""
The baseline: the same cleansing by Structured Streaming with Spark's own Kafka connector, all in SQL. Runs on PySpark 4.0.0.

Usage: python spark_connector.py BOOTSTRAP SOURCE SINK DEAD_LETTERS SINK_PARTITIONS FOLDER JAR...

It reads what is in the source topic and ends. It is at least once, as Spark's Kafka sink is, and cannot keep timestamps.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

MARK = "<<<!>>>"
SEPARATOR = f"{MARK},{MARK}"
FIELDS = {"houseid": 1, "gathertime": 2, "srcip": 3, "destip": 4, "srcport": 5, "destport": 6}
URL, COUNT = 13, 15
# Spark's string functions decode UTF-8 and would lose bytes that are none. In ISO-8859-1, each letter is a byte.
BYTES = "ISO-8859-1"

# Every pattern ends in \z, because $ would let a line feed pass.
TIME = (
    r"^(?!0000)(?:\d{4}(?:(?:0[13578]|1[02])(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)(?:0[1-9]|[12]\d|30)"
    r"|02(?:0[1-9]|1\d|2[0-8]))|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)0229)"
    r"(?:[01]\d|2[0-3])[0-5]\d[0-5]\d\z"
)
OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IPV4 = rf"{OCTET}(?:\.{OCTET}){{3}}"
PORT = r"^0*(?:\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])\z"
ILLEGAL = r"[\x00-\x1f\x7f|]"
SUSPECT = r"[\x00-\x1f\x7f-\xff|]"
# A valid UTF-8 sequence, or else one byte.
SEQUENCE = (
    r"([\xC2-\xDF][\x80-\xBF]|\xE0[\xA0-\xBF][\x80-\xBF]|[\xE1-\xEC\xEE\xEF][\x80-\xBF]{2}|\xED[\x80-\x9F][\x80-\xBF]"
    r"|\xF0[\x90-\xBF][\x80-\xBF]{2}|[\xF1-\xF3][\x80-\xBF]{3}|\xF4[\x80-\x8F][\x80-\xBF]{2}|[\x00-\xFF])"
)


def main() -> None:
    """Cleanse the source topic up to its present end."""
    bootstrap, source, sink, dead_letters, partitions, folder, *jars = sys.argv[1:]
    spark = session(Path(folder), jars)
    rows = cleansed(read(spark, bootstrap, source), source, sink, dead_letters, int(partitions))
    write(rows, bootstrap, Path(folder)).awaitTermination()
    spark.stop()


def session(folder: Path, jars: list[str]) -> SparkSession:
    """Start Spark on two cores with the connector on its class path."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {':'.join(jars)} --driver-memory 3g pyspark-shell"
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(folder))
        .config("spark.driver.extraJavaOptions", "-XX:+UseParallelGC")
        .getOrCreate()
    )


def read(spark: SparkSession, bootstrap: str, source: str) -> DataFrame:
    """Read the source topic in batches that are big enough for a batch's own cost not to count."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": source,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000000",
        "kafka.max.poll.records": "20000",
        "kafka.max.partition.fetch.bytes": "8388608",
        "kafka.fetch.max.bytes": "67108864",
    }
    return spark.readStream.format("kafka").options(**options).load()


def write(rows: DataFrame, bootstrap: str, folder: Path) -> StreamingQuery:
    """Write lines and dead letters in one pass, so that the source is read once."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.compression.type": "lz4",
        "kafka.batch.size": "1000000",
        "kafka.linger.ms": "20",
        "kafka.buffer.memory": "134217728",
        "checkpointLocation": str(folder / "checkpoint"),
    }
    return rows.writeStream.format("kafka").options(**options).trigger(availableNow=True).start()


def cleansed(rows: DataFrame, source: str, sink: str, dead_letters: str, partitions: int) -> DataFrame:
    """Return what goes to Kafka: key, value, headers, topic and partition."""
    lines = rows.select("key", "value", "partition", "offset", text().alias("line"))
    split = lines.withColumn("parts", f.split("line", SEPARATOR, -1))
    trimmed = split.select(
        *("key", "value", "partition", "offset", "line", f.size("parts").alias("count")),
        *(f.btrim(f.get("parts", f.lit(at)), f.lit(" \t")).alias(name) for name, at in FIELDS.items()),
        f.get("parts", f.lit(URL)).alias("url"),
    )
    judged = trimmed.withColumn("reason", reason())
    good = f.col("reason").isNull()
    return judged.select(
        "key",
        f.when(good, clean_line()).otherwise(f.col("value")).alias("value"),
        f.when(good, f.lit(sink)).otherwise(f.lit(dead_letters)).alias("topic"),
        f.pmod("partition", f.when(good, partitions).otherwise(1)).cast("int").alias("partition"),
        f.when(~good, headers(source)).alias("headers"),
    )


def text() -> Column:
    """Return the line without a trailing CR, LF or CRLF."""
    line = f.decode("value", BYTES)
    return f.when(f.endswith(line, f.lit(">")), line).otherwise(f.regexp_replace(line, r"(?:\r\n|\r|\n)\z", ""))


def reason() -> Column:
    """Return why a line must be rejected, or null."""
    line = f.col("line")
    return (
        f.when(line.isNull() | (line == ""), "empty")
        .when(~(line.startswith(MARK) & line.endswith(MARK)), "no_marker")
        .when(f.col("count") != COUNT, "field_count")
        .when(f.col("houseid") == "", "houseid")
        .when(~f.col("gathertime").rlike(TIME), "gathertime")
        .when(~is_address("srcip"), "srcip")
        .when(~is_address("destip"), "destip")
        .when(~f.col("srcport").rlike(PORT), "srcport")
        .when(~f.col("destport").rlike(PORT), "destport")
        .when(is_illegal("houseid"), "illegal_character")
    )


def is_address(name: str) -> Column:
    """Tell an IPv4 address; only what is none is tried as IPv6."""
    return f.col(name).rlike(rf"^{IPV4}\z") | f.col(name).rlike(ipv6())


def ipv6() -> str:
    """Return the pattern of an IPv6 address: the count of groups around `::`, and a last pair written as IPv4."""
    group, pair = "[0-9A-Fa-f]{1,4}", rf"(?:[0-9A-Fa-f]{{1,4}}:[0-9A-Fa-f]{{1,4}}|{IPV4})"
    forms = [rf"(?:{group}:){{6}}{pair}"]
    for before in range(8):
        head = rf"(?:{group}(?::{group}){{0,{before - 1}}})?" if before else ""
        after = 7 - before
        tail = rf"(?:{group}(?::{group}){{0,{after - 1}}})?" if after else ""
        forms.append(f"{head}::{tail}")
        if after > 1:
            forms.append(rf"{head}::(?:{group}:){{0,{after - 2}}}{IPV4}")
    return rf"^(?:{'|'.join(forms)})\z"


def is_illegal(name: str) -> Column:
    """Tell what may not be in a house id; what is all ASCII need not be looked at twice."""
    utf8 = f.is_valid_utf8(f.encode(f.col(name), BYTES).cast("string"))
    return f.col(name).rlike(SUSPECT) & (f.col(name).rlike(ILLEGAL) | ~utf8)


def clean_line() -> Column:
    """Return the cleansed line."""
    url = f.when(f.col("url").rlike(SUSPECT), escaped(f.col("url"))).otherwise(f.col("url"))
    bar, colon = f.lit("|"), f.lit(":")
    source = f.concat(bracketed("srcip"), colon, "srcport")
    destination = f.concat(bracketed("destip"), colon, "destport")
    return f.encode(f.concat("houseid", bar, "gathertime", bar, source, bar, destination, bar, url), BYTES)


def bracketed(name: str) -> Column:
    return f.when(f.contains(f.col(name), f.lit(":")), f.concat(f.lit("["), name, f.lit("]"))).otherwise(f.col(name))


def escaped(url: Column) -> Column:
    """Percent-encode bars, control characters and bytes that are not UTF-8."""
    sequences = f.regexp_extract_all(url, f.lit(SEQUENCE), f.lit(1))
    return f.array_join(f.transform(sequences, escaped_sequence), "")


def escaped_sequence(sequence: Column) -> Column:
    code = f.concat(f.lit("%"), f.hex(f.encode(sequence, BYTES)))
    return f.when((f.length(sequence) == 1) & sequence.rlike(SUSPECT), code).otherwise(sequence)


def headers(source: str) -> Column:
    """Return a dead letter's headers."""
    told = {
        "topic": f.lit(source),
        "partition": f.col("partition").cast("string"),
        "offset": f.col("offset").cast("string"),
        "exception.class.name": f.col("reason"),
        "exception.message": f.concat(f.lit("rejected: "), "reason"),
    }
    pairs = [
        f.struct(f.lit(f"__connect.errors.{name}").alias("key"), value.cast("binary").alias("value"))
        for name, value in told.items()
    ]
    return f.array(*pairs)


if __name__ == "__main__":
    main()
