"""
The baseline: the same cleansing in Spark SQL, with Structured Streaming and Spark's own Kafka connector. Runs on
PySpark 4.0.0.

Usage: python spark_connector.py BOOTSTRAP SOURCE SINK DEAD_LETTERS SINK_PARTITIONS FOLDER JAR...

It reads the source topic to its current end. Spark's Kafka sink is at least once and cannot set timestamps.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

MARK = "<<<!>>>"
SEPARATOR = f"{MARK},{MARK}"
HOUSEID, GATHERTIME, SRCIP, DESTIP, SRCPORT, DESTPORT, URL, COUNT = 1, 2, 3, 4, 5, 6, 13, 15
# Spark's string functions decode UTF-8 and lose invalid bytes. In ISO-8859-1 each byte is one character.
BYTES = "ISO-8859-1"

TIME = (
    r"(?!0000)(?:\d{4}(?:(?:0[13578]|1[02])(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)(?:0[1-9]|[12]\d|30)"
    r"|02(?:0[1-9]|1\d|2[0-8]))|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)0229)"
    r"(?:[01]\d|2[0-3])[0-5]\d[0-5]\d"
)
OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IPV4 = rf"{OCTET}(?:\.{OCTET}){{3}}"
PORT = r"0*(?:\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"
PLAIN = rf"^[\w.-]+\|{TIME}\|{IPV4}:{PORT}\|{IPV4}:{PORT}\z"
ILLEGAL = r"[\x00-\x1f\x7f|]"
SUSPECT = r"[\x00-\x1f|\x7f-\x{10ffff}]"
# A run of characters that need no escaping, or one character that needs it.
PIECE = r"([^\x00-\x1f\x7f|]+|[\x00-\x1f\x7f|])"
BYTES_PIECE = (
    r"([ -{}~]+|[\xC2-\xDF][\x80-\xBF]|\xE0[\xA0-\xBF][\x80-\xBF]|[\xE1-\xEC\xEE\xEF][\x80-\xBF]{2}|\xED[\x80-\x9F][\x80-\xBF]"
    r"|\xF0[\x90-\xBF][\x80-\xBF]{2}|[\xF1-\xF3][\x80-\xBF]{3}|\xF4[\x80-\x8F][\x80-\xBF]{2}|[\x00-\xFF])"
)


def main() -> None:
    """Cleanse the source topic up to its current end."""
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
        .config("spark.driver.extraJavaOptions", "-XX:+UseParallelGC -XX:-DontCompileHugeMethods")
        .getOrCreate()
    )


def read(spark: SparkSession, bootstrap: str, source: str) -> DataFrame:
    """Return the source topic as a stream, in batches so large that their fixed cost is negligible."""
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
    """Write lines and dead letters in one pass, so that the source is read only once."""
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
    """Return the rows for Kafka: key, value, headers, topic and partition."""
    line = f.col("value").cast("string")
    lines = rows.withColumn("utf8", f.is_valid_utf8(line)).withColumn(
        "line", f.when(f.col("utf8"), line).otherwise(f.decode("value", BYTES))
    )
    split = lines.withColumn("parts", f.split("line", SEPARATOR, -1)).withColumn("head", head(part, part))
    # A regular expression on the head decides most lines. Only the others are checked field by field.
    plain = f.col("head").rlike(PLAIN) & is_marked() & (f.size("parts") == COUNT)
    judged = split.withColumn("plain", f.coalesce(plain, f.lit(False))).withColumn("reason", reason())
    good = f.col("reason").isNull()
    start = f.when(f.col("plain"), f.col("head")).otherwise(head(trimmed, bracketed))
    # Spark does not compile the escaping. As a separate step it copies only a few columns.
    narrow = judged.select(
        *("key", "utf8", f.when(~good, f.col("value")).alias("value")),
        *(f.when(good, start).alias("start"), f.when(good, part(URL)).alias("url")),
        f.when(good, f.lit(sink)).otherwise(f.lit(dead_letters)).alias("topic"),
        f.when(good, f.pmod("partition", f.lit(partitions))).otherwise(0).cast("int").alias("partition"),
        f.when(~good, headers(source)).alias("headers"),
    )
    return narrow.select("key", f.coalesce("value", clean_line()).alias("value"), "topic", "partition", "headers")


def part(at: int) -> Column:
    """Return a field unchanged."""
    return f.get("parts", f.lit(at))


def trimmed(at: int) -> Column:
    """Return a field without blanks around it."""
    return f.btrim(part(at), f.lit(" \t"))


def bracketed(at: int) -> Column:
    """Return an address as written before a port."""
    address = trimmed(at)
    return f.when(f.contains(address, f.lit(":")), f.concat(f.lit("["), address, f.lit("]"))).otherwise(address)


def head(field: Callable[[int], Column], address: Callable[[int], Column]) -> Column:
    """Return the cleansed line up to its url."""
    bar, colon = f.lit("|"), f.lit(":")
    source = (address(SRCIP), colon, field(SRCPORT))
    return f.concat(field(HOUSEID), bar, field(GATHERTIME), bar, *source, bar, address(DESTIP), colon, field(DESTPORT))


def is_marked() -> Column:
    """Return whether a line begins and ends with the marker, with any line end."""
    line = f.col("line")
    ends = [line.endswith(MARK + end) for end in ("", "\r\n", "\n", "\r")]
    return line.startswith(MARK) & (ends[0] | ends[1] | ends[2] | ends[3])


def reason() -> Column:
    """Return why a line is rejected, or null."""
    return (
        f.when(f.col("plain"), f.lit(None))
        .when(f.col("line").isNull() | f.col("line").isin("", "\r\n", "\n", "\r"), "empty")
        .when(~is_marked(), "no_marker")
        .when(f.size("parts") != COUNT, "field_count")
        .when(trimmed(HOUSEID) == "", "houseid")
        .when(~matches(GATHERTIME, TIME), "gathertime")
        .when(~(matches(SRCIP, IPV4) | matches(SRCIP, ipv6())), "srcip")
        .when(~(matches(DESTIP, IPV4) | matches(DESTIP, ipv6())), "destip")
        .when(~matches(SRCPORT, PORT), "srcport")
        .when(~matches(DESTPORT, PORT), "destport")
        .when(trimmed(HOUSEID).rlike(ILLEGAL) | ~is_utf8(trimmed(HOUSEID)), "illegal_character")
    )


def matches(at: int, pattern: str) -> Column:
    """Return whether a whole field matches the pattern. `$` would accept a trailing line feed."""
    return trimmed(at).rlike(rf"^(?:{pattern})\z")


def is_utf8(letters: Column) -> Column:
    """Return whether characters that represent bytes are valid UTF-8."""
    return f.col("utf8") | f.is_valid_utf8(f.encode(letters, BYTES).cast("string"))


def ipv6() -> str:
    """Return the pattern of an IPv6 address, with `::` anywhere and the last two groups optionally in IPv4 form."""
    group, pair = "[0-9A-Fa-f]{1,4}", rf"(?:[0-9A-Fa-f]{{1,4}}:[0-9A-Fa-f]{{1,4}}|{IPV4})"
    forms = [rf"(?:{group}:){{6}}{pair}"]
    for before in range(8):
        head = rf"(?:{group}(?::{group}){{0,{before - 1}}})?" if before else ""
        after = 7 - before
        tail = rf"(?:{group}(?::{group}){{0,{after - 1}}})?" if after else ""
        forms.append(f"{head}::{tail}")
        if after > 1:
            forms.append(rf"{head}::(?:{group}:){{0,{after - 2}}}{IPV4}")
    return "|".join(forms)


def clean_line() -> Column:
    """Return the cleansed line, or null for a rejected one."""
    url = f.when(f.col("url").rlike(SUSPECT), escaped(f.col("url"))).otherwise(f.col("url"))
    clean = f.concat("start", f.lit("|"), url)
    return f.when(f.col("utf8"), clean.cast("binary")).otherwise(f.encode(clean, BYTES))


def escaped(url: Column) -> Column:
    """Percent-encode bars, control characters and bytes that are not UTF-8."""
    pieces = f.regexp_extract_all(url, f.when(f.col("utf8"), f.lit(PIECE)).otherwise(f.lit(BYTES_PIECE)), f.lit(1))
    return f.array_join(f.transform(pieces, escaped_piece), "")


def escaped_piece(piece: Column) -> Column:
    """Percent-encode a character if necessary. If characters are bytes, a single one above 0x7F is not UTF-8."""
    code = f.concat(f.lit("%"), f.hex(f.encode(piece, BYTES)))
    return f.when(piece.rlike(ILLEGAL) | (~f.col("utf8") & piece.rlike(r"^[\x80-\xff]\z")), code).otherwise(piece)


def headers(source: str) -> Column:
    """Return the headers of a dead letter."""
    fields = {
        "topic": f.lit(source),
        "partition": f.col("partition").cast("string"),
        "offset": f.col("offset").cast("string"),
        "exception.class.name": f.col("reason"),
        "exception.message": f.concat(f.lit("rejected: "), "reason"),
    }
    pairs = [
        f.struct(f.lit(f"__connect.errors.{name}").alias("key"), value.cast("binary").alias("value"))
        for name, value in fields.items()
    ]
    return f.array(*pairs)


if __name__ == "__main__":
    main()
