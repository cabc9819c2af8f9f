"""
Rules between keys, and rules about properties.

Each rule names the keys it needs, and applies if each of those is valid, whatever is wrong elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from app.config.model import Config, Filter, duration
from app.config.sources import Tree
from app.cures import CHECK
from app.headers import OURS
from app.kafka import properties as kafka_properties
from app.spark import properties as spark_properties

WRITTEN = ("sink.topic", "dead.letters.topic")
SOURCE_CLUSTER = "kafka"
CLUSTERS = (SOURCE_CLUSTER, "sink.kafka")


class Rule(NamedTuple):
    """The keys that a rule needs, and a check that takes their values and yields what is wrong."""

    keys: tuple[str, ...]
    check: Callable[..., Iterator[str]]


def broken(tree: Tree, values: Mapping[str, object], more: Iterable[Rule] = ()) -> Iterator[str]:
    for rule in (*RULES, *more):
        if all(key in values for key in rule.keys):
            yield from rule.check(tree, *(values[key] for key in rule.keys))


def _one_way_to_choose(tree: Tree, topics: tuple[str, ...], pattern: str | None) -> Iterator[str]:
    either = "set either source.topics or source.topics.pattern"
    if topics and pattern:
        yield f"{either}, not both{tree.at('source.topics', 'source.topics.pattern')}"
    elif not topics and not pattern:
        looked = tree.at("source.topics") if tree.has("source.topics") else f": {tree.missing('source.topics')}"
        yield f"{either}{looked}"


def _destinations_differ(tree: Tree, sink: str, dead_letters: str) -> Iterator[str]:
    if sink == dead_letters:
        yield f"{' and '.join(WRITTEN)} must differ: readers could not tell them apart{tree.at(*WRITTEN)}"


Properties = Mapping[str, str]


def _is_not_named(
    written: str, tree: Tree, topics: tuple[str, ...], topic: str, *clusters: Properties
) -> Iterator[str]:
    if topic in topics and _are_one(*clusters):
        where = tree.at("source.topics", written)
        yield f"source.topics: {topic!r} is also {written}: Winnow would read its own output{where}"


def _is_not_matched(written: str, tree: Tree, pattern: str | None, topic: str, *clusters: Properties) -> Iterator[str]:
    if pattern and re.fullmatch(pattern, topic) and _are_one(*clusters):
        where = tree.at("source.topics.pattern", written)
        what = f"source.topics.pattern matches {topic!r}, which is also {written}"
        yield f"{what}: Winnow would read its own output{where}"


def _is_no_placeholder(
    tree: Tree, topics: tuple[str, ...], placeholder: str, sink_kafka: Properties, *written: str
) -> Iterator[str]:
    names = {placeholder.format(topic=each) for each in topics} if sink_kafka else ()
    for key, topic in zip(WRITTEN, written, strict=True):
        if topic in names:
            where = tree.at("offsets.placeholder", key)
            what = f"offsets.placeholder: {topic!r} is also {key}"
            yield f"{what}: Winnow would commit offsets under its name, and add partitions to it{where}"


def _are_one(kafka: Properties, sink_kafka: Properties) -> bool:
    """Return whether source and sink certainly share a cluster; only Kafka knows whether two names are one broker."""
    return not sink_kafka or bool(_brokers(kafka) & _brokers(sink_kafka))


def _brokers(kafka: Properties) -> set[str]:
    """Return the named brokers as `host:port`; librdkafka also accepts `SSL://host`."""
    named = ",".join(kafka.get(name, "") for name in kafka_properties.BROKERS).lower().split(",")
    places = (each.strip().rpartition("://")[2] for each in named)
    return {place if re.search(r":\d+$", place) else f"{place}:9092" for place in places if place}


def undecided(config: Config) -> str:
    """Return a warning if only Kafka can tell whether a source topic is also one that Winnow writes to."""
    written = {config.sink.topic: WRITTEN[0], config.dead_letters.topic: WRITTEN[1]}
    pattern, other = config.source.topics_pattern or "", not _are_one(config.kafka, config.sink.kafka)
    read = [each for each in written if other and (each in config.source.topics or re.fullmatch(pattern, each))]
    if not read:
        return ""
    return (
        f"source topic {read[0]!r} is also {written[read[0]]}, which is correct only if kafka and sink.kafka are "
        f"different clusters: {CHECK} compares their ids"
    )


def _headers_have_an_envelope(tree: Tree, names: tuple[str, ...], source_format: str) -> Iterator[str]:
    if names and source_format == "raw":
        where = tree.at("source.flume.headers")
        yield f"source.flume.headers needs source.format flume-avro or auto: raw lines have no headers{where}"


def _headers_are_not_ours(tree: Tree, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if name.startswith(OURS):
            where = tree.at("source.flume.headers")
            yield f"source.flume.headers: {name!r} is reserved for Winnow's own headers: remove it{where}"


def _transactions_outlive_commits(tree: Tree, timeout: float, interval: float) -> Iterator[str]:
    if interval * 4 > timeout:
        yield (
            "transaction.timeout must be at least four times commit.interval: "
            f"it is {duration(timeout)}{tree.at('transaction.timeout')}, "
            f"and commit.interval is {duration(interval)}{tree.at('commit.interval')}"
        )


def _a_partition_can_start(tree: Tree, store: str, starting: object) -> Iterator[str]:
    if store == "none" and starting == "error":
        where = tree.at("offsets.store.name", "starting.offsets")
        yield f"starting.offsets must not be error without a store: no partition would ever start{where}"


def _a_broker_is_named(cluster: str, tree: Tree, kafka: Properties) -> Iterator[str]:
    full = {name: f"{cluster}.{name}" for name in kafka_properties.BROKERS}
    is_wrong = any(tree.has(full[name]) for name in full if name not in kafka)  # and another message names it
    if (kafka or cluster == SOURCE_CLUSTER) and not _brokers(kafka) and not is_wrong:
        yield f"{tree.missing(full['bootstrap.servers'])}; for example localhost:9092"


def _is_not_overruled(cluster: str, tree: Tree, kafka: Properties) -> Iterator[str]:
    for name in kafka:
        if reason := kafka_properties.OWNED.get(kafka_properties.value_name(name)):
            yield f"{cluster}.{name} cannot be set: {reason}{tree.at(f'{cluster}.{name}')}"


def _is_a_plain_number(cluster: str, tree: Tree, kafka: Properties) -> Iterator[str]:
    for name in kafka_properties.NUMBERS:
        if name in kafka and kafka_properties.is_refused(name, kafka[name]):
            yield f"{cluster}.{name} must be a number in digits, such as 1000{tree.at(f'{cluster}.{name}')}"


def _gives_a_secret_once(cluster: str, tree: Tree, kafka: Properties) -> Iterator[str]:
    for name in filter(kafka_properties.is_secret_file, kafka):
        file, value = f"{cluster}.{name}", f"{cluster}.{kafka_properties.value_name(name)}"
        if kafka_properties.value_name(name) in kafka:
            yield f"{file} and {value} are both set: keep the file{tree.at(file, value)}"


def _sets_properties_of_spark(tree: Tree, spark: Mapping[str, str]) -> Iterator[str]:
    for name, value in spark.items():
        if not name.startswith("spark."):
            at = tree.at(f"spark.{name}")
            yield f"spark.{name} is no property of Spark, whose names begin with spark: write spark.spark.{name}{at}"
        fixed = spark_properties.FIXED.get(name)
        if fixed and value != fixed.value:
            yield f"{name} must stay {fixed.value}: {fixed.reason}{tree.at(f'spark.{name}')}"


def _filters_differ(tree: Tree, filters: tuple[Filter, ...]) -> Iterator[str]:
    names = [each.rule.name for each in filters]
    for name in dict.fromkeys(each for each in names if names.count(each) > 1):
        where = tree.at("filter")
        yield f"filter: {names.count(name)} filters are called {name}: give each its own name, which counts it{where}"


RULES = (
    Rule(("source.topics", "source.topics.pattern"), _one_way_to_choose),
    Rule(WRITTEN, _destinations_differ),
    *(Rule(("source.topics", each, *CLUSTERS), partial(_is_not_named, each)) for each in WRITTEN),
    *(Rule(("source.topics.pattern", each, *CLUSTERS), partial(_is_not_matched, each)) for each in WRITTEN),
    Rule(("source.topics", "offsets.placeholder", "sink.kafka", *WRITTEN), _is_no_placeholder),
    Rule(("source.flume.headers", "source.format"), _headers_have_an_envelope),
    Rule(("source.flume.headers",), _headers_are_not_ours),
    Rule(("transaction.timeout", "commit.interval"), _transactions_outlive_commits),
    Rule(("offsets.store.name", "starting.offsets"), _a_partition_can_start),
    Rule(("filter",), _filters_differ),
    *(
        Rule((cluster,), partial(check, cluster))
        for check in (_a_broker_is_named, _is_not_overruled, _is_a_plain_number, _gives_a_secret_once)
        for cluster in CLUSTERS
    ),
    Rule(("spark",), _sets_properties_of_spark),
)
