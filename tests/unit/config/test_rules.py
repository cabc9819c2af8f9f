"""What keys owe each other: each rule, what it names, and that nothing hides it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from app.config.model import declared
from app.config.rules import RULES
from tests.unit.config.good import GOOD, problems


class TestSource:
    def test_topics_are_chosen_in_one_way(self, file: Path) -> None:
        """Names and a pattern together contradict each other; both are named with their origins."""
        told = problems(file, "source.topics.pattern=x")

        assert [
            (
                "set either source.topics or source.topics.pattern, not both "
                "(winnow.yaml:3 and --set source.topics.pattern)"
            )
        ] == told

    def test_topics_are_chosen(self, file: Path) -> None:
        """A source without topics says where they could be."""
        file.write_text(yaml.safe_dump({key: value for key, value in GOOD.items() if key != "source"}))

        (told,) = problems(file)

        assert told.startswith("set either source.topics or source.topics.pattern: source.topics is missing: set it in")

    def test_an_empty_list_chooses_nothing(self, file: Path) -> None:
        """It is written somewhere, so that place is named."""
        told = problems(file, "source.topics=[]")

        assert ["set either source.topics or source.topics.pattern (--set source.topics)"] == told

    def test_a_source_is_not_written_to(self, file: Path) -> None:
        """Winnow would read what it writes, for ever."""
        told = problems(file, "sink.topic=raw-logs")

        assert [
            "source.topics: 'raw-logs' is also sink.topic: Winnow would feed itself (winnow.yaml:3 and --set sink.topic)"
        ] == told

    def test_a_pattern_must_not_match_what_is_written(self, file: Path) -> None:
        """A pattern that matches the dead letters would make Winnow eat its own rejects."""
        told = problems(file, "source={topics.pattern: 'raw-logs.*', topics: []}")

        assert [
            (
                "source.topics.pattern matches 'raw-logs.dlq', which is also dead.letters.topic: Winnow would feed itself "
                "(--set source and winnow.yaml:8)"
            )
        ] == told


class TestDestinations:
    def test_sink_and_dead_letters_differ(self, file: Path) -> None:
        """Readers of one topic could not tell a cleansed line from a rejected one."""
        told = problems(file, WINNOW_SINK__TOPIC="raw-logs.dlq")

        assert [
            (
                "sink.topic and dead.letters.topic must differ: readers could not tell them apart "
                "(WINNOW_SINK__TOPIC and winnow.yaml:8)"
            )
        ] == told


class TestTransactions:
    def test_settings_must_fit_together(self, file: Path) -> None:
        """A transaction that lives no longer than a few commits would be aborted under load."""
        told = problems(file, "commit.interval=20s")

        assert [
            (
                "transaction.timeout must be at least four times commit.interval: it is 60s (default), "
                "and commit.interval is 20s (--set commit.interval)"
            )
        ] == told


class TestProperties:
    def test_a_broker_must_be_named(self, file: Path) -> None:
        """Without bootstrap.servers there is nothing to connect to."""
        file.write_text(yaml.safe_dump(GOOD | {"kafka": {"linger.ms": 5}}))

        (told,) = problems(file)

        assert told.startswith("kafka.bootstrap.servers is missing: set it in winnow.yaml, as WINNOW_KAFKA__BOOTSTRAP_")
        assert "for example localhost:9092" in told

    @pytest.mark.parametrize(
        ("flag", "answer"),
        [
            ("kafka.transactional.id=hunter2", "kafka.transactional.id cannot be set: it is the fence"),
            ("kafka.isolation.level=hunter2", "kafka.isolation.level cannot be set: Winnow always reads committed"),
            ("spark.spark.speculation=hunter2", "spark.speculation must stay false: a speculative attempt"),
        ],
    )
    def test_a_property_that_winnow_owns_is_refused(self, file: Path, flag: str, answer: str) -> None:
        """With the reason and the origin, and without the value."""
        (told,) = problems(file, flag)

        assert told.startswith(answer)
        assert told.endswith(f"(--set {flag.partition('=')[0]})")
        assert "hunter2" not in told

    def test_a_secret_is_given_once(self, file: Path) -> None:
        """A value and a file for the same key contradict each other."""
        told = problems(file, "kafka.sasl.password.file=/x", WINNOW_KAFKA__SASL_PASSWORD="y")

        assert [
            (
                "kafka.sasl.password.file and kafka.sasl.password are both set: keep the file "
                "(--set kafka.sasl.password.file and WINNOW_KAFKA__SASL_PASSWORD)"
            )
        ] == told


class TestNothingHides:
    def test_a_typo_does_not_hide_what_is_wrong_elsewhere(self, file: Path) -> None:
        """A rule runs wherever the keys that it looks at are right by themselves."""
        told = problems(
            file,
            "sink.topc=x",
            "sink.topic=raw-logs",
            "kafka.transactional.id=x",
            "transaction.timeout=10s",
            "commit.interval=5s",
        )

        assert 4 == len(told)
        for part in ("sink.topc: unknown key", "is also sink.topic", "it is the fence", "four times commit.interval"):
            assert part in "\n".join(told)

    def test_a_pattern_is_compared_where_other_keys_are_wrong(self, file: Path) -> None:
        """A collision with the sink is found although the dead letters have no topic."""
        file.write_text(yaml.safe_dump(GOOD | {"source": {"topics.pattern": "clean.*"}, "dead.letters": {"topic": 5}}))

        told = problems(file)

        assert 2 == len(told)
        assert "source.topics.pattern matches 'clean-logs', which is also sink.topic" in told[1]

    def test_the_source_is_chosen_in_one_way_whatever_else_it_holds(self, file: Path) -> None:
        """A wrong format or an unknown key leaves the choice of topics as it is."""
        told = problems(file, "source={format: avro, formta: x, topics.pattern: y}")

        assert 3 == len(told)
        assert "not both" in told[2]

    def test_a_property_that_is_wrong_does_not_hide_another(self, file: Path) -> None:
        """Each property counts by itself."""
        told = problems(file, "kafka.linger={ms: 5}", "kafka.group.id=x")

        assert 2 == len(told)
        assert told[1].startswith("kafka.group.id cannot be set")

    def test_a_broker_that_is_wrong_is_not_missing(self, file: Path) -> None:
        """One mistake is one problem."""
        assert 1 == len(problems(file, "kafka.bootstrap.servers=[a, b]"))

    def test_a_rule_waits_for_keys_that_are_right(self, file: Path) -> None:
        """What is wrong by itself is not compared with anything."""
        assert 1 == len(problems(file, "transaction.timeout=1s", "commit.interval=5s"))


def test_every_rule_looks_at_declared_keys() -> None:
    """A rule with a misspelt key would never apply."""
    assert {key for rule in RULES for key in rule.keys} <= dict(declared()).keys()
