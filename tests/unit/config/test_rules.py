"""Rules between keys: the keys that each message names, and that no other mistake hides it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from app.config import load
from app.config.model import declared
from app.config.rules import RULES, undecided
from tests.unit.config.good import GOOD, problems


class TestSource:
    def test_topics_and_pattern_exclude_each_other(self, file: Path) -> None:
        """Names and a pattern together are an error that names the origins of both."""
        found = problems(file, "source.topics.pattern=x")

        assert [
            (
                "set either source.topics or source.topics.pattern, not both "
                "(winnow.yaml:3 and --set source.topics.pattern)"
            )
        ] == found

    def test_topics_are_chosen(self, file: Path) -> None:
        """Without topics, the message names both keys and where to set them."""
        file.write_text(yaml.safe_dump({key: value for key, value in GOOD.items() if key != "source"}))

        (problem,) = problems(file)

        assert problem.startswith(
            "set either source.topics or source.topics.pattern: source.topics is missing: set it in"
        )

    def test_an_empty_list_chooses_nothing(self, file: Path) -> None:
        """An empty list is named with its origin."""
        found = problems(file, "source.topics=[]")

        assert ["set either source.topics or source.topics.pattern (--set source.topics)"] == found

    def test_a_source_must_not_be_the_sink(self, file: Path) -> None:
        """Winnow would read its own output forever."""
        found = problems(file, "sink.topic=raw-logs")

        assert [
            "source.topics: 'raw-logs' is also sink.topic: Winnow would read its own output (winnow.yaml:3 and --set sink.topic)"
        ] == found

    def test_a_pattern_must_not_match_an_output_topic(self, file: Path) -> None:
        """If the pattern matches the dead letters, Winnow would read its own rejects."""
        found = problems(file, "source={topics.pattern: 'raw-logs.*', topics: []}")

        assert [
            (
                "source.topics.pattern matches 'raw-logs.dlq', which is also dead.letters.topic: Winnow would read its own output "
                "(--set source and winnow.yaml:8)"
            )
        ] == found

    def test_headers_need_an_envelope(self, file: Path) -> None:
        """Raw lines have no Flume headers."""
        found = problems(file, "source.flume.headers=[host]")

        assert [
            (
                "source.flume.headers needs source.format flume-avro or auto: raw lines have no headers "
                "(--set source.flume.headers)"
            )
        ] == found

    def test_a_line_keeps_no_header_that_is_ours(self, file: Path) -> None:
        """A header of a Flume event could pass for one of Winnow's."""
        found = problems(file, "source={topics: [raw], format: flume-avro, flume.headers: [host, winnow.source]}")

        assert [
            "source.flume.headers: 'winnow.source' is reserved for Winnow's own headers: remove it (--set source)"
        ] == found


class TestTwoClusters:
    CENTRE = "sink.kafka.bootstrap.servers=centre:9092"

    def test_a_topic_of_another_cluster_may_have_the_name_of_a_source(self, file: Path) -> None:
        """The same name on the sink's cluster is another topic."""
        config = load(file, [self.CENTRE, "sink.topic=raw-logs"], {})

        assert (("raw-logs",), "raw-logs") == (config.source.topics, config.sink.topic)
        assert "{topic}.winnow-offsets" == config.placeholder

    def test_only_kafka_tells_whether_that_is_another_cluster(self, file: Path) -> None:
        """A broker may have two names, so a check without --connect says what it cannot know."""
        names = load(file, [self.CENTRE, "sink.topic=raw-logs"], {})
        pattern = load(file, [self.CENTRE, "source={topics.pattern: 'raw-logs.*', topics: []}"], {})

        assert (
            "source topic 'raw-logs' is also sink.topic, which is correct only if kafka and sink.kafka are different clusters: "
            "winnow check -c winnow.yaml --connect compares their ids"
        ) == undecided(names)
        assert "'raw-logs.dlq' is also dead.letters.topic" in undecided(pattern)
        assert "" == undecided(load(file, [self.CENTRE], {})) == undecided(load(file, (), {}))

    @pytest.mark.parametrize("broker", ["localhost:9092", "x:1, LOCALHOST", "SSL://localhost:9092"])
    def test_a_broker_that_both_name_makes_them_one(self, file: Path, broker: str) -> None:
        """A topic that is both source and sink on one cluster is refused, however the cluster is written."""
        found = problems(file, f"sink.kafka.bootstrap.servers={broker}", "sink.topic=raw-logs")

        assert [
            "source.topics: 'raw-logs' is also sink.topic: Winnow would read its own output (winnow.yaml:3 and --set sink.topic)"
        ] == found

    def test_without_another_cluster_nothing_stands_for_a_source(self, file: Path) -> None:
        """Without `sink.kafka`, offsets are committed under the source topics themselves."""
        config = load(file, (), {})

        assert ("", config.kafka) == (config.placeholder, config.output_kafka)

    def test_the_sinks_cluster_has_the_rules_of_the_sources(self, file: Path) -> None:
        """A broker is required, Winnow's own properties cannot be set, and a secret is given once."""
        flags = ["acks=1", "group.id=x", "sasl.password=a", "sasl.password.file=b"]

        missing, owned, twice = problems(file, *(f"sink.kafka.{flag}" for flag in flags))

        assert missing.startswith("sink.kafka.bootstrap.servers is missing: set it in winnow.yaml")
        assert "sink.kafka.group.id cannot be set: use the top-level key group.id (--set sink.kafka.group.id)" == owned
        assert twice.startswith("sink.kafka.sasl.password.file and sink.kafka.sasl.password are both set")

    @pytest.mark.parametrize("name", ["offsets", "{topic}{topic}", "a b.{topic}", "{topic}/x"])
    def test_a_placeholder_must_be_a_topic_for_each_source(self, file: Path, name: str) -> None:
        """Two sources must not share a placeholder, and topic names allow few characters."""
        (problem,) = problems(file, f"offsets.placeholder='{name}'")

        assert problem.startswith("offsets.placeholder must contain {topic} once")

    @pytest.mark.parametrize("written", ["sink.topic", "dead.letters.topic"])
    def test_a_placeholder_must_not_be_an_output(self, file: Path, written: str) -> None:
        """Winnow commits offsets under its name, and grows it with the source. Without `sink.kafka`, there is none."""
        output = f"{written}=raw-logs.winnow-offsets"

        assert [
            (
                f"offsets.placeholder: 'raw-logs.winnow-offsets' is also {written}: Winnow would commit offsets under "
                f"its name, and add partitions to it (default and --set {written})"
            )
        ] == problems(file, self.CENTRE, output)
        assert "" == load(file, [output], {}).placeholder


class TestDestinations:
    def test_sink_and_dead_letters_differ(self, file: Path) -> None:
        """Readers of a common topic could not tell cleansed lines from rejects."""
        found = problems(file, WINNOW_SINK__TOPIC="raw-logs.dlq")

        assert [
            (
                "sink.topic and dead.letters.topic must differ: readers could not tell them apart "
                "(WINNOW_SINK__TOPIC and winnow.yaml:8)"
            )
        ] == found


class TestTransactions:
    def test_settings_must_fit_together(self, file: Path) -> None:
        """A transaction timeout of only a few commit intervals would abort transactions under load."""
        found = problems(file, "commit.interval=20s")

        assert [
            (
                "transaction.timeout must be at least four times commit.interval: it is 60s (default), "
                "and commit.interval is 20s (--set commit.interval)"
            )
        ] == found


def test_a_service_without_a_store_must_be_able_to_start(file: Path) -> None:
    """No partition has an offset then, so `error` would block every one at each start."""
    found = problems(file, "offsets.store.name=none", "starting.offsets=error", "delivery.guarantee=at-least-once")

    assert [
        (
            "starting.offsets must not be error without a store: no partition would ever start "
            "(--set offsets.store.name and --set starting.offsets)"
        )
    ] == found


class TestProperties:
    @pytest.mark.parametrize(
        "kafka",
        [{"linger.ms": 5}, {"bootstrap.servers": ""}, {"bootstrap.servers": " , "}, {"metadata.broker.list": ""}],
    )
    def test_a_broker_must_be_named(self, file: Path, kafka: dict[str, object]) -> None:
        """Without one there is nothing to connect to, and librdkafka would wait for ever."""
        file.write_text(yaml.safe_dump(GOOD | {"kafka": kafka}))

        (problem,) = problems(file)

        assert problem.startswith(
            "kafka.bootstrap.servers is missing: set it in winnow.yaml, as WINNOW_KAFKA__BOOTSTRAP_"
        )
        assert "for example localhost:9092" in problem

    @pytest.mark.parametrize(
        ("flag", "answer"),
        [
            ("kafka.transactional.id=hunter2", "kafka.transactional.id cannot be set: Winnow derives it"),
            ("kafka.isolation.level=hunter2", "kafka.isolation.level cannot be set: Winnow reads only committed"),
            (
                "kafka.retry.backoff.max.ms=hunter2",
                "kafka.retry.backoff.max.ms cannot be set: Winnow relies on its own",
            ),
            ("kafka.partitioner=hunter2", "kafka.partitioner cannot be set: use sink.partitioner"),
            ("kafka.isolation.level.file=hunter2", "kafka.isolation.level.file cannot be set: Winnow reads only comm"),
            ("kafka.group.instance.id.file=hunter2", "kafka.group.instance.id.file cannot be set: Winnow assigns p"),
            ("kafka.transaction.timeout.ms=hunter2", "kafka.transaction.timeout.ms cannot be set: use transaction.t"),
            ("spark.spark.speculation=hunter2", "spark.speculation must stay false: a speculative attempt"),
            ("spark.spark.python.worker.reuse=false", "spark.python.worker.reuse must stay true: a new worker"),
            ("spark.master=hunter2", "spark.master is no property of Spark, whose names begin with spark: wri"),
            ("spark.spark.ui.liveUpdate.period=1s", "spark.ui.liveUpdate.period must stay 0: otherwise a lost task"),
        ],
    )
    def test_a_property_that_winnow_owns_is_refused(self, file: Path, flag: str, answer: str) -> None:
        """The message has the reason and the origin, but not the value."""
        (problem,) = problems(file, flag)

        assert problem.startswith(answer)
        assert problem.endswith(f"(--set {flag.partition('=')[0]})")
        assert "hunter2" not in problem

    def test_the_value_that_a_property_has_anyway_is_taken(self, file: Path) -> None:
        """Setting a fixed property to Winnow's own value is harmless."""
        flags = ["spark.speculation=false", "spark.python.worker.reuse=true", "spark.ui.liveUpdate.period=0"]

        assert 3 == len(load(file, [f"spark.{flag}" for flag in flags], {}).spark)

    @pytest.mark.parametrize(
        "flag",
        [
            "message.max.bytes=0x200000",
            "message.max.bytes=2e6",
            "queue.buffering.max.kbytes=0",
            "linger.ms=0x10",
            "queue.buffering.max.ms=5 # ms",
        ],
    )
    def test_a_number_is_written_in_digits(self, file: Path, flag: str) -> None:
        """Tasks read these numbers, too, and librdkafka takes forms that Python reads otherwise or not at all."""
        name = f"kafka.{flag.partition('=')[0]}"

        assert [f"{name} must be a number in digits, such as 1000 (--set {name})"] == problems(file, f"kafka.{flag}")
        assert "0.5" == load(file, ["kafka.linger.ms=0.5"], {}).kafka["linger.ms"]

    def test_a_secret_is_given_once(self, file: Path) -> None:
        """A value and a file for the same key contradict each other."""
        found = problems(file, "kafka.sasl.password.file=/x", WINNOW_KAFKA__SASL_PASSWORD="y")

        assert [
            (
                "kafka.sasl.password.file and kafka.sasl.password are both set: keep the file "
                "(--set kafka.sasl.password.file and WINNOW_KAFKA__SASL_PASSWORD)"
            )
        ] == found


class TestNothingHides:
    def test_a_typo_does_not_hide_other_mistakes(self, file: Path) -> None:
        """A rule runs if the keys that it needs are valid."""
        found = problems(
            file,
            "sink.topc=x",
            "sink.topic=raw-logs",
            "kafka.transactional.id=x",
            "transaction.timeout=10s",
            "commit.interval=5s",
        )

        assert 4 == len(found)
        for part in ("sink.topc: unknown key", "is also sink.topic", "Winnow derives it", "four times commit.interval"):
            assert part in "\n".join(found)

    def test_a_pattern_is_compared_where_other_keys_are_wrong(self, file: Path) -> None:
        """A collision with the sink is found even if the dead letters have no topic."""
        file.write_text(yaml.safe_dump(GOOD | {"source": {"topics.pattern": "clean.*"}, "dead.letters": {"topic": 5}}))

        found = problems(file)

        assert 2 == len(found)
        assert "source.topics.pattern matches 'clean-logs', which is also sink.topic" in found[1]

    def test_topics_and_pattern_exclude_each_other_despite_other_mistakes(self, file: Path) -> None:
        """A wrong format or an unknown key does not hide that both are set."""
        found = problems(file, "source={format: avro, formta: x, topics.pattern: y}")

        assert 3 == len(found)
        assert "not both" in found[2]

    def test_a_property_that_is_wrong_does_not_hide_another(self, file: Path) -> None:
        """Each wrong property is its own problem."""
        found = problems(file, "kafka={linger: {ms: 5}}", "kafka.group.id=x")

        assert 2 == len(found)
        assert found[1].startswith("kafka.group.id cannot be set")

    def test_a_broker_that_is_wrong_is_not_missing(self, file: Path) -> None:
        """An invalid bootstrap.servers is not also reported as missing."""
        assert 1 == len(problems(file, "kafka={bootstrap.servers: [a, b]}"))

    def test_a_rule_skips_invalid_keys(self, file: Path) -> None:
        """An invalid key is not compared with others."""
        assert 1 == len(problems(file, "transaction.timeout=1s", "commit.interval=5s"))


def test_every_rule_uses_declared_keys() -> None:
    """A rule with a misspelt key would never apply."""
    assert {key for rule in RULES for key in rule.keys} <= dict(declared()).keys()
