"""What a mistake in a single key is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.config.good import GOOD, problems


def test_all_problems_come_at_once(file: Path) -> None:
    """Nobody should have to fix a file one error at a time."""
    assert 3 == len(problems(file, "sink.topc=x", "delivery.guarantee=maybe", "round.interval=0"))


@pytest.mark.parametrize(
    ("flag", "answer"),
    [
        ("sink.topc=x", "sink.topc: unknown key; did you mean sink.topic?"),
        ("grop.id=x", "grop.id: unknown key; did you mean group.id?"),
        ("dead.letter.topic=x", "dead.letter.topic: unknown key; did you mean dead.letters.topic?"),
        ("xyzzy=1", "xyzzy: unknown key; known here: group.id, source,"),
        ("offsets.stroe=x", "offsets.stroe: unknown key; did you mean offsets.store?"),
        ("delivery.guarantee=maybe", "delivery.guarantee must be exactly-once or at-least-once, not 'maybe'"),
        ("source.format=avro", "source.format must be raw, flume-avro or auto, not 'avro'"),
        (
            "starting.offsets=x",
            "starting.offsets must be earliest, latest, error or {timestamp: milliseconds}, not 'x'",
        ),
        (
            "starting.offsets={timestamp: -1}",
            "starting.offsets must be earliest, latest, error or {timestamp: milliseconds}, not {timestamp: -1}",
        ),
        ("starting.offsets={timestmp: 1}", "not {timestmp: 1}"),
        ("source={topics: [], topics.pattern: '('}", "source.topics.pattern is not a regular expression (missing )"),
        ("source.topics=[1, [2]]", "source.topics must be a list of names, such as [a, b], not [1, [2]]"),
        ("transaction.timeout=1s", "transaction.timeout must be at least 10s, not 1s"),
        ("transaction.timeout=1000", "transaction.timeout must be at most 900s, not 1000"),
        ("round.interval=soon", "round.interval must be a duration such as 500ms, 30s, 5m or 1h, not 'soon'"),
        ("round.interval=1.2.3s", "round.interval must be a duration such as 500ms, 30s, 5m or 1h, not 1.2.3s"),
        ("round.interval=", "round.interval is empty"),
        ("sink.topic=", "sink.topic is empty"),
        ("group.id=''", "group.id is empty"),
        ("sink.topic=true", "sink.topic must be text, not true"),
        ("log.level=[]", "log.level must be debug, info, warning or error, not []"),
        ("parser={1: x}", "parser.1: a key must be text; put it in quotes"),
        ("sink=x", "sink must be a section with keys and values, not 'x'"),
        ("offsets.store=x", "offsets.store must be a section with keys and values, not 'x'"),
    ],
)
def test_a_mistake_says_what_to_write(file: Path, flag: str, answer: str) -> None:
    """Each message names the key, what is wrong, what would be right, and where it is written."""
    (told,) = problems(file, flag)

    assert answer in told
    assert told.endswith(f"(--set {flag.partition('=')[0]})")


def test_known_keys_are_listed_where_none_is_near(file: Path) -> None:
    """Those of the section in question."""
    assert ["sink.xyz: unknown key; known here: topic (--set sink.xyz)"] == problems(file, "sink.xyz=1")


class TestOrigins:
    def test_a_line_of_the_file_is_named(self, file: Path) -> None:
        """As editors and compilers have it."""
        file.write_text(file.read_text() + "log.level: loud\n")

        assert ["log.level must be debug, info, warning or error, not 'loud' (winnow.yaml:11)"] == problems(file)

    def test_a_variable_is_named(self, file: Path) -> None:
        """So that it is not sought in the file."""
        (told,) = problems(file, WINNOW_LOG_LEVEL="loud")

        assert told.endswith("(WINNOW_LOG_LEVEL)")


class TestMissing:
    def test_a_missing_key_says_where_it_can_be_set(self, file: Path) -> None:
        """A file without a sink asks for the sink's topic."""
        file.write_text(yaml.safe_dump({key: value for key, value in GOOD.items() if key != "sink"}))

        assert [
            "sink.topic is missing: set it in winnow.yaml, as WINNOW_SINK__TOPIC, or with --set sink.topic=..."
        ] == problems(file)

    def test_an_empty_section_lacks_its_keys(self, file: Path) -> None:
        """A heading alone is as good as none."""
        file.write_text(yaml.safe_dump(GOOD | {"sink": None}))

        assert problems(file)[0].startswith("sink.topic is missing")

    def test_without_a_file_one_is_proposed(self) -> None:
        """With nothing at all, every key that must be set is named."""
        told = problems(None)

        assert "group.id is missing: set it in a file (-c), as WINNOW_GROUP_ID, or with --set group.id=..." == told[0]
        assert ["group.id", "sink.topic", "dead.letters.topic"] == [one.partition(" ")[0] for one in told[:3]]
        assert 5 == len(told)


class TestNesting:
    def test_a_dotted_key_that_should_be_nested_says_how(self, file: Path) -> None:
        """In the file, a dot does not make a section."""
        file.write_text(file.read_text() + "offsets.store.name: x\n")

        assert [
            (
                "offsets.store.name: unknown key; write offsets: {store: {name: ...}}, "
                "or WINNOW_OFFSETS__STORE__NAME in the environment (winnow.yaml:11)"
            )
        ] == problems(file)

    def test_a_variable_with_one_underscore_says_where_two_belong(self, file: Path) -> None:
        """The commonest slip in an environment."""
        (told,) = problems(file, WINNOW_KAFKA_LINGER_MS="5")

        assert "write kafka: {linger.ms: ...}, or WINNOW_KAFKA__LINGER_MS in the environment" in told


class TestSecrets:
    @pytest.mark.parametrize(
        ("flag", "answer"),
        [
            ("kafka=hunter2", "kafka must be a section with keys and values"),
            ("kafka.sasl.password={hunter2: hunter2}", "kafka.sasl.password must be text, a number, true or false"),
            ("kafka.sasl.password=[hunter2]", "kafka.sasl.password must be text, a number, true or false"),
            ("kafka.sasl.password=", "kafka.sasl.password is empty"),
            ("spark.spark.ssl.keyPassword=[hunter2]", "spark.spark.ssl.keyPassword must be text"),
        ],
    )
    def test_a_value_of_kafka_or_spark_is_never_repeated(self, file: Path, flag: str, answer: str) -> None:
        """It may be a password; its key and its origin are enough."""
        told = "\n".join(problems(file, flag))

        assert answer in told
        assert "hunter2" not in told
