"""What a user can set, from where, and what a mistake is answered with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config import From, described, load, masked
from app.errors import ConfigError
from app.model import Guarantee

GOOD: dict[str, Any] = {
    "group.id": "idc-cleansing",
    "source": {"topics": ["raw-logs"], "format": "raw"},
    "sink": {"topic": "clean-logs"},
    "dead.letters": {"topic": "raw-logs.dlq"},
    "kafka": {"bootstrap.servers": "localhost:9092"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "winnow.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    return path


def problems(file: Path | None, *assignments: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, assignments, environ)
    return list(caught.value.problems)


class TestSources:
    def test_defaults_are_the_documented_ones(self, file: Path) -> None:
        """A minimal file is exactly-once, from the earliest offset, and stops for lost records."""
        config = load(file, (), {})

        assert Guarantee.EXACTLY_ONCE is config.delivery_guarantee
        assert ("earliest", "error") == (config.starting_offsets, config.out_of_range)
        assert ("idc-access-log", {}) == (config.parser.name, config.parser.options)
        assert {"spark.master": "local[*]"} == config.spark
        assert (10.0, 0.5) == (config.round_interval, config.commit_interval)

    def test_a_flag_wins_over_the_environment_and_that_over_the_file(self, file: Path) -> None:
        """Precedence: --set, then WINNOW_..., then the file."""
        environ = {"WINNOW_SINK__TOPIC": "from-env", "WINNOW_DEAD_LETTERS__TOPIC": "dead-env"}

        config = load(file, ["sink.topic=from-flag"], environ)

        assert ("from-flag", "dead-env") == (config.sink.topic, config.dead_letters.topic)

    def test_a_configuration_needs_no_file(self) -> None:
        """Containers can be configured by the environment alone."""
        environ = {
            "WINNOW_GROUP_ID": "g",
            "WINNOW_SOURCE__TOPICS": "a, b",
            "WINNOW_SINK__TOPIC": "c",
            "WINNOW_DEAD_LETTERS__TOPIC": "d",
            "WINNOW_KAFKA__BOOTSTRAP_SERVERS": "k:9092",
            "UNRELATED": "x",
        }

        config = load(None, (), environ)

        assert ("a", "b") == config.source.topics
        assert {"bootstrap.servers": "k:9092"} == config.kafka

    def test_names_of_others_pass_verbatim(self, file: Path) -> None:
        """Librdkafka's and Spark's names keep their dots and case, and their values become text."""
        flags = ["kafka.enable.ssl.certificate.verification=true", "spark.spark.executor.memoryOverhead=512m"]

        config = load(file, flags, {"WINNOW_KAFKA__LINGER_MS": "5"})

        assert "true" == config.kafka["enable.ssl.certificate.verification"]
        assert "5" == config.kafka["linger.ms"]
        assert "512m" == config.spark["spark.executor.memoryOverhead"]

    @pytest.mark.parametrize(
        ("written", "seconds"), [("500ms", 0.5), ("30s", 30), ("5m", 300), ("2", 2), ("0.25", 0.25)]
    )
    def test_durations_have_units(self, file: Path, written: str, seconds: float) -> None:
        """A bare number is in seconds."""
        key = "round.interval" if seconds >= 1 else "commit.interval"

        config = load(file, [f"{key}={written}"], {})

        assert seconds == (config.round_interval if seconds >= 1 else config.commit_interval)

    def test_a_start_can_be_a_time(self, file: Path) -> None:
        """starting.offsets takes a timestamp in milliseconds."""
        config = load(file, ["starting.offsets={timestamp: 1510464542000}"], {})

        assert From(timestamp=1510464542000) == config.starting_offsets

    def test_parser_options_are_kept_for_the_parser(self, file: Path) -> None:
        """Every key beside parser.name belongs to the parser."""
        config = load(file, ["parser={name: delimited, separator: ';'}"], {})

        assert ("delimited", {"separator": ";"}) == (config.parser.name, config.parser.options)


class TestMistakes:
    def test_all_problems_come_at_once(self, file: Path) -> None:
        """Nobody should have to fix a file one error at a time."""
        told = problems(file, "sink.topc=x", "delivery.guarantee=maybe", "round.interval=0")

        assert 3 == len(told)

    @pytest.mark.parametrize(
        ("assignment", "answer"),
        [
            ("sink.topc=x", "sink.topc: unknown key; did you mean sink.topic?"),
            ("grop.id=x", "grop.id: unknown key; did you mean group.id?"),
            ("xyzzy=1", "xyzzy: unknown key; known here: group.id, source,"),
            ("delivery.guarantee=maybe", "'exactly-once' or 'at-least-once', got 'maybe'"),
            ("source={topics.pattern: 'raw-.*'}", "set either topics or topics.pattern"),
            ("source={topics: [], topics.pattern: '('}", "not a regular expression"),
            ("source.topics.pattern=x", "set either topics or topics.pattern"),
            ("sink.topic=raw-logs.dlq", "must differ"),
            ("sink.topic=raw-logs", "Winnow would feed itself"),
            ("kafka.transactional.id=x", "kafka.transactional.id cannot be set: it is the fence"),
            ("kafka.isolation.level=read_uncommitted", "cannot be set"),
            ("spark.spark.speculation=true", "spark.speculation must stay false"),
            ("transaction.timeout=1s", "greater than or equal to 10"),
            ("nonsense", "write it as key=value"),
        ],
    )
    def test_a_mistake_says_what_to_write(self, file: Path, assignment: str, answer: str) -> None:
        """Each message names the key, what is wrong, and what would be right."""
        assert answer in "\n".join(problems(file, assignment))

    def test_settings_must_fit_together(self, file: Path) -> None:
        """A transaction that lives no longer than a few commits would be aborted under load."""
        told = problems(file, "transaction.timeout=10s", "commit.interval=5s")

        assert ["transaction.timeout must be at least four times commit.interval"] == told

    def test_a_broker_must_be_named(self, file: Path) -> None:
        """Without bootstrap.servers there is nothing to connect to."""
        file.write_text(yaml.safe_dump(GOOD | {"kafka": {"linger.ms": 5}}))

        assert "bootstrap.servers is missing" in problems(file)[0]

    def test_a_missing_key_is_named(self, file: Path) -> None:
        """A file without a sink says so."""
        file.write_text(yaml.safe_dump({key: value for key, value in GOOD.items() if key != "sink"}))

        assert ["sink: is missing"] == problems(file)

    def test_a_pattern_must_not_match_what_is_written(self, file: Path) -> None:
        """A pattern that matches the dead letters would make Winnow eat its own rejects."""
        told = problems(file, "source={topics.pattern: 'raw-logs.*', topics: []}")

        assert "which is also written to" in told[0]

    @pytest.mark.parametrize("content", ["[1, 2]", "a: [", "\xff"])
    def test_a_file_that_is_no_configuration_is_named(self, file: Path, content: str) -> None:
        """The path of the file is part of the message."""
        file.write_bytes(content.encode("latin-1"))

        assert str(file) in problems(file)[0]

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        """So is one that cannot be read."""
        assert "No such file" in problems(tmp_path / "none.yaml")[0]


class TestSecrets:
    def test_secrets_are_masked(self, file: Path) -> None:
        """What `check` prints shows paths of secrets, never secrets."""
        flags = ["kafka.sasl.password=hunter2", "kafka.ssl.key.pem=hunter2", "kafka.ssl.key.location=/k"]

        shown = masked(load(file, flags, {"WINNOW_KAFKA__SASL_OAUTHBEARER_CLIENT_SECRET": "hunter2"}))

        assert "hunter2" not in str(shown)
        assert "/k" == shown["kafka"]["ssl.key.location"]

    def test_a_secret_can_be_a_file(self, file: Path, tmp_path: Path) -> None:
        """NAME.file is read where the client is made, so that only the path travels."""
        from app.kafka.settings import common

        secret = tmp_path / "password"
        secret.write_text("hunter2\n")
        config = load(file, [f"kafka.sasl.password.file={secret}"], {})

        assert "hunter2" == common(config.kafka)["sasl.password"]
        assert "hunter2" not in str(config)

    def test_a_secret_is_given_once(self, file: Path) -> None:
        """A value and a file for the same key contradict each other."""
        told = problems(file, "kafka.sasl.password.file=/x", "kafka.sasl.password=y")

        assert "both set" in told[0]


def test_every_key_has_a_meaning() -> None:
    """Help and README are made of these."""
    rows = list(described())

    assert all(meaning for _, _, meaning in rows)
    assert "source.topics.pattern" in {key for key, _, _ in rows}
