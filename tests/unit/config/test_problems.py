"""The error messages for mistakes in single keys."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from app.config import load
from tests.unit.config.good import GOOD, problems

STARTS = "starting.offsets must be earliest, latest, error, {timestamp: milliseconds} or {by.duration: 2h}"


def test_all_problems_come_at_once(file: Path) -> None:
    """One run lists every problem, so that nobody fixes a file one error at a time."""
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
        ("starting.offsets=x", f"{STARTS}, not 'x'"),
        ("starting.offsets={timestamp: -1}", f"{STARTS}, not {{timestamp: -1}}"),
        (
            "starting.offsets={timestamp: 1735689600}",
            "starting.offsets must be a time in milliseconds: 1735689600 milliseconds after the epoch is in 1970 (",
        ),
        ("starting.offsets.timestamp=1735689600000000", "1735689600000000 milliseconds after the epoch is in 56971 ("),
        ("starting.offsets.timestamp=9223372036854775808", "9223372036854775808 milliseconds after the epoch is in"),
        ("starting.offsets={timestmp: 1}", f"{STARTS}, not {{timestmp: 1}}"),
        ("starting.offsets={by.duration: soon}", f"{STARTS}, not {{by.duration: soon}}"),
        ("starting.offsets={by.duration: -5}", f"{STARTS}, not {{by.duration: -5}}"),
        ("starting.offsets={by.duration: .inf}", f"{STARTS}, not {{by.duration: .inf}}"),
        ("starting.offsets={timestamp: true}", f"{STARTS}, not {{timestamp: true}}"),
        ("starting.offsets={by.duration: yes}", f"{STARTS}, not {{by.duration: true}}"),
        ("starting.offsets={timestamp: 1, by.duration: 2h}", f"{STARTS}, not {{by.duration: 2h, timestamp: 1}}"),
        ("out.of.range=near", "out.of.range must be error, earliest, latest or nearest, not 'near'"),
        ("source={topics: [], topics.pattern: '('}", "source.topics.pattern is not a regular expression (missing )"),
        ("source.topics=[1, [2]]", "source.topics must be a list of names, such as [a, b], not [1, [2]]"),
        ("transaction.timeout=1s", "transaction.timeout must be at least 10s, not 1s"),
        ("transaction.timeout=1000", "transaction.timeout must be at most 900s, not 1000"),
        ("round.interval=soon", "round.interval must be a duration such as 500ms, 30s, 5m or 1h, not 'soon'"),
        ("round.interval=1.2.3s", "round.interval must be a duration such as 500ms, 30s, 5m or 1h, not 1.2.3s"),
        ("round.interval=", "round.interval is empty"),
        ("sink.topic=", "sink.topic is empty"),
        ("sink.topic=''", "sink.topic is empty"),
        ("dead.letters.topic=''", "dead.letters.topic is empty"),
        ("source.topics=['']", "source.topics names '', which no topic can be called: use up to 249 letters"),
        ("group.id=''", "group.id is empty"),
        ("sink.topic=true", "sink.topic must be text, not true"),
        ("http.port=70000", "http.port must be at most 65535, not 70000"),
        ("http.port=-1", "http.port must be at least 0, not -1"),
        ("http.port=web", "http.port must be a whole number, not 'web'"),
        ("http.enabled=perhaps", "http.enabled must be true or false, not 'perhaps'"),
        ("http.address=", "http.address is empty"),
        ("http.adress=::", "http.adress: unknown key; did you mean http.address?"),
        ("log.level=[]", "log.level must be debug, info, warning or error, not []"),
        ("parser={1: x}", "parser.1: a key must be text; put it in quotes"),
        ("sink=x", "sink must be a section with keys and values, not 'x'"),
        (
            "filter=[{drop: {field: no, matches: x}}]",
            "filter[0].drop must be {field: a field of the parser's output}, not {field: false, matches: x}",
        ),
        (
            "filter=[{drop: {field: a, matches: x}, limit: 50}]",
            "filter[0].limit must be a share between 0 and 1, such as 0.5, not 50",
        ),
        (
            "filter=[{drop: {field: a, matches: x}, limit: on}]",
            "filter[0].limit must be a share between 0 and 1, such as 0.5, not true",
        ),
        (
            "dead.letters.breaker.ratio=50%",
            "dead.letters.breaker.ratio must be a share between 0 and 1, such as 0.5, not",
        ),
        ("offsets.store=x", "offsets.store must be a section with keys and values"),
    ],
)
def test_a_message_names_the_correction(file: Path, flag: str, answer: str) -> None:
    """Each message names the key, the mistake, the correction and the origin."""
    (problem,) = problems(file, flag)

    assert answer in problem
    assert problem.endswith(f"(--set {flag.partition('=')[0]})")


def test_known_keys_are_listed_if_none_is_similar(file: Path) -> None:
    """The message lists the keys of the same section."""
    assert ["sink.xyz: unknown key; known here: topic, key, partitioner, kafka (--set sink.xyz)"] == problems(
        file, "sink.xyz=1"
    )


@pytest.mark.parametrize(
    "host",
    [
        "winnow.example.com:8443",
        "cafe.de:80",
        "https://winnow.example.com",
        "winnow.example.com/",
        "*.example.com",
        "a b",
        "bücher.example",  # a browser asks for xn--bcher-kva.example
        "[::1]:8090",
        "",
    ],
)
def test_a_host_that_no_request_can_name(file: Path, host: str) -> None:
    """Each request would get 421, though the name seems to be allowed."""
    (problem,) = problems(file, f"http.allowed.hosts=[a.example, '{host}']")

    assert problem.startswith(f"http.allowed.hosts names {host!r}, which no request can use: write only a host name")


def test_hosts_that_a_request_can_name(file: Path) -> None:
    """An address is needless, but right."""
    hosts = ("Winnow.example.com", "winnow.example.com.", "my_winnow", "10.0.0.1", "::1", "[fd00::ffff:10.0.0.1]")

    assert hosts == load(file, [f"http.allowed.hosts={','.join(hosts)}"], {}).http.allowed_hosts


@pytest.mark.parametrize("key", ["source.topics", "sink.topic", "dead.letters.topic"])
@pytest.mark.parametrize("name", ["clean logs", "raw/x", "ä", ".", "..", 250 * "x"])
def test_a_name_that_no_topic_can_have(file: Path, key: str, name: str) -> None:
    """Kafka refuses it, and the service would wait for that topic."""
    (problem,) = problems(file, f"{key}={name}")

    assert problem.startswith(f"{key} names {name!r}, which no topic can be called: use up to 249 letters")


@pytest.mark.parametrize("name", ["...", "_", "A.b-9", 249 * "x"])
def test_a_name_that_a_topic_can_have(file: Path, name: str) -> None:
    """Three dots are a name, and so are 249 characters."""
    assert name == load(file, [f"sink.topic={name}"], {}).sink.topic


@pytest.mark.parametrize(
    "key",
    [
        "dead.letters.breaker.ratio",
        "dead.letters.breaker.minimum",
        "dead.letters.breaker.window",
        "commit.interval",
        "max.rate.per.partition",
        "initial.rate",
        "buffer.memory",
        "generation",
        "handover.timeout",
        "http.port",
    ],
)
@pytest.mark.parametrize("word", ["on", "off"])
def test_a_word_is_no_number(file: Path, key: str, word: str) -> None:
    """A breaker that is `off` is not one at 0 %."""
    (problem,) = problems(file, f"{key}={word}")

    assert f", not {'true' if word == 'on' else 'false'} (--set {key})" in problem
    assert " at least " not in problem


class TestOrigins:
    def test_a_line_of_the_file_is_named(self, file: Path) -> None:
        """A message names file and line, as compilers do."""
        file.write_text(file.read_text() + "log.level: loud\n")

        assert ["log.level must be debug, info, warning or error, not 'loud' (winnow.yaml:11)"] == problems(file)

    def test_a_variable_is_named(self, file: Path) -> None:
        """A message names the environment variable, so that nobody searches the file for it."""
        (problem,) = problems(file, WINNOW_LOG_LEVEL="loud")

        assert problem.endswith("(WINNOW_LOG_LEVEL)")


class TestLists:
    def test_each_key_of_each_item_is_named(self, file: Path) -> None:
        """Every mistake in a list is told at once, with its line and the nearest name."""
        file.write_text(
            file.read_text()
            + """\
parser:
  samples:
    - line: a
      outptu: b
      output: c
    - {line: a}
    - line: [a]
      reason: empty
    - x
offsets.mirrors:
  -
    nam: redis
"""
        )

        assert [
            "offsets.mirrors[0].name is missing (winnow.yaml:22)",
            "parser.samples[0].outptu: unknown key; did you mean parser.samples[0].output? (winnow.yaml:14)",
            "parser.samples[1] must have either an output or a reason (winnow.yaml:16)",
            "parser.samples[2].line must be text, not [a] (winnow.yaml:17)",
            "parser.samples[3] must be a section with keys and values, not 'x' (winnow.yaml:19)",
        ] == problems(file)

    def test_what_is_no_list(self, file: Path) -> None:
        """The form that it must have is shown."""
        form = "[{line: ..., output: ..., reason: ...}]"

        found = problems(file, "parser.samples=x")

        assert [f"parser.samples must be a list of sections, such as {form}, not 'x' (--set parser.samples)"] == found


class TestMissing:
    def test_a_missing_key_is_named_with_the_places_to_set_it(self, file: Path) -> None:
        """The message names the missing key and where to set it."""
        file.write_text(yaml.safe_dump({key: value for key, value in GOOD.items() if key != "sink"}))

        assert [
            "sink.topic is missing: set it in winnow.yaml, as WINNOW_SINK__TOPIC, or with --set sink.topic=..."
        ] == problems(file)

    def test_an_empty_section_lacks_its_keys(self, file: Path) -> None:
        """An empty section is the same as a missing one."""
        file.write_text(yaml.safe_dump(GOOD | {"sink": None}))

        assert problems(file)[0].startswith("sink.topic is missing")

    def test_without_a_file_every_required_key_is_named(self) -> None:
        """Every required key is named, and a file comes first among the places to set it."""
        found = problems(None, "log.level=info")

        assert "group.id is missing: set it in a file (-c), as WINNOW_GROUP_ID, or with --set group.id=..." == found[0]
        assert ["group.id", "sink.topic", "dead.letters.topic"] == [one.partition(" ")[0] for one in found[:3]]
        assert 5 == len(found)

    def test_without_anything_the_file_is_missing(self) -> None:
        """Five missing keys would hide it; the defaults of an image are no configuration, and nor is the file's name."""
        found = problems(None, WINNOW_DEFAULT__HTTP__ADDRESS="0.0.0.0", WINNOW_CONFIG="")  # what the image has

        said = "there is none: name a file with -c or in WINNOW_CONFIG, or write ./winnow.yaml, as winnow init does"
        assert [said] == found


class TestSecrets:
    @pytest.mark.parametrize(
        ("flag", "answer"),
        [
            ("kafka=hunter2", "kafka must be a section with keys and values"),
            ("kafka={sasl.password: {hunter2: hunter2}}", "kafka.sasl.password must be text, a number, true or false"),
            ("kafka={sasl.password: [hunter2]}", "kafka.sasl.password must be text, a number, true or false"),
            ("kafka.sasl.password=", "kafka.sasl.password is empty"),
            ("spark={spark.ssl.keyPassword: [hunter2]}", "spark.spark.ssl.keyPassword must be text"),
            (
                "offsets.mirrors=redis://:hunter2@h",
                "offsets.mirrors must be a list of sections, such as [{name: ...}]",
            ),
            ("offsets.mirrors=[{url: hunter2}]", "offsets.mirrors[0].name is missing (--set offsets.mirrors)"),
            ("offsets.mirrors=[hunter2]", "offsets.mirrors[0] must be a section with keys and values"),
            ("offsets.mirrors=[{name: [hunter2]}]", "offsets.mirrors[0].name must be text (--set"),
        ],
    )
    def test_a_value_of_kafka_or_spark_is_never_repeated(self, file: Path, flag: str, answer: str) -> None:
        """The value may be a password, so the message has only the key and its origin."""
        found = "\n".join(problems(file, flag))

        assert answer in found
        assert "hunter2" not in found
