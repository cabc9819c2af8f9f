"""Where values come from, which one wins, and the errors of unreadable sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.config import FromDuration, FromTimestamp, load, read
from app.config.sources import gather
from app.model import Guarantee
from tests.unit.config.good import problems


class TestPrecedence:
    def test_defaults_are_the_documented_ones(self, file: Path) -> None:
        """A minimal configuration is exactly-once, starts at the earliest offset, and stops if records were lost."""
        config = load(file, (), {})

        assert Guarantee.EXACTLY_ONCE is config.delivery_guarantee
        assert ("earliest", "error") == (config.starting_offsets, config.out_of_range)
        assert ("idc-access-log", {}) == (config.parser.name, config.parser.options)
        assert ("kafka", {}) == (config.offsets.store.name, config.offsets.store.options)
        assert {"spark.master": "local[*]"} == config.spark
        assert (10.0, 0.5) == (config.round_interval, config.commit_interval)

    def test_a_flag_wins_over_the_environment_and_that_over_the_file(self, file: Path) -> None:
        """Precedence: --set, then WINNOW_..., then the file."""
        environ = {"WINNOW_SINK__TOPIC": "from-env", "WINNOW_DEAD_LETTERS__TOPIC": "dead-env"}

        config = load(file, ["sink.topic=from-flag"], environ)

        assert ("from-flag", "dead-env") == (config.sink.topic, config.dead_letters.topic)

    def test_a_default_of_the_image_never_wins(self, file: Path) -> None:
        """Any value set by a user wins over an image's default; without one, `check` names the default's origin."""
        default = {"WINNOW_DEFAULT__HTTP__ADDRESS": "0.0.0.0"}  # what the image has

        assert "0.0.0.0" == load(file, (), default).http.address
        assert "WINNOW_DEFAULT__HTTP__ADDRESS" == read(file, (), default).origins["http", "address"]
        assert "::1" == load(file, (), default | {"WINNOW_HTTP__ADDRESS": "::1"}).http.address
        file.write_text(file.read_text() + "http: {address: 127.0.0.1}\n")
        assert "127.0.0.1" == load(file, (), default).http.address

    def test_a_topic_that_is_named_twice_counts_once(self, file: Path) -> None:
        """The client refuses to look for a topic twice."""
        assert ("a", "b") == load(file, ["source.topics=a,b,a"], {}).source.topics

    def test_a_configuration_needs_no_file(self) -> None:
        """The environment alone is enough, as in containers."""
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

    @pytest.mark.parametrize("later", [{"WINNOW_STARTING_OFFSETS": "{by.duration: 2h}"}, {}])
    def test_a_value_that_is_a_section_is_replaced(self, file: Path, later: dict[str, str]) -> None:
        """It is not merged with the earlier one: no start has both a time and a duration."""
        file.write_text(f"{file.read_text()}starting.offsets: {{timestamp: 5}}\nparser: {{a: {{x: 1}}, b: 1}}\n")
        flags = ["parser.a={y: 2}", *([] if later else ["starting.offsets={by.duration: 2h}"])]

        config = load(file, flags, later)

        assert FromDuration(**{"by.duration": 7200}) == config.starting_offsets
        assert {"a": {"y": 2}, "b": 1} == config.parser.options

    def test_a_part_of_a_value_changes_only_its_own_place(self, file: Path) -> None:
        """YAML's aliases are one object in several places."""
        file.write_text(file.read_text() + "parser: {a: &same {x: {z: 1}}, b: *same}\n")

        config = load(file, (), {"WINNOW_PARSER__A__X": "2"})

        assert {"a": {"x": 2}, "b": {"x": {"z": 1}}} == config.parser.options

    def test_an_empty_section_takes_nothing_away(self, file: Path) -> None:
        """Sections of several sources are merged key by key."""
        assert "clean-logs" == load(file, ["sink={}"], {}).sink.topic

    def test_nor_does_an_empty_variable(self, file: Path) -> None:
        """`WINNOW_PARSER: ${PARSER:-}` is empty where nobody sets `PARSER`."""
        file.write_text(f"{file.read_text()}parser: {{name: json}}\nsink.kafka: {{bootstrap.servers: centre:1}}\n")

        config = load(file, ["dead.letters="], {"WINNOW_PARSER": "", "WINNOW_SINK__KAFKA": ""})

        assert ("json", "raw-logs.dlq") == (config.parser.name, config.dead_letters.topic)
        assert {"bootstrap.servers": "centre:1"} == config.sink.kafka

    def test_an_empty_section_in_the_file_has_its_defaults(self, file: Path) -> None:
        """An empty section is valid if none of its keys is required."""
        file.write_text(file.read_text() + "parser:\noffsets:\n")

        assert "idc-access-log" == load(file, (), {}).parser.name


class TestValues:
    def test_names_of_others_pass_verbatim(self, file: Path) -> None:
        """Names of librdkafka and Spark keep their dots and case, and their values become text."""
        flags = ["kafka.enable.ssl.certificate.verification=true", "spark.spark.executor.memoryOverhead=512m"]

        config = load(file, flags, {"WINNOW_KAFKA__LINGER_MS": "5"})

        assert "true" == config.kafka["enable.ssl.certificate.verification"]
        assert "5" == config.kafka["linger.ms"]
        assert "512m" == config.spark["spark.executor.memoryOverhead"]

    @pytest.mark.parametrize(
        "text", ["012345", "0x1F", "1e3", "yes", "a: b", "'x'", "[1", "true", "1_000", "2001-01-01"]
    )
    def test_a_single_property_is_taken_verbatim(self, file: Path, text: str) -> None:
        """As YAML, the password 012345 would be 5349."""
        flags = [f"kafka.ssl.key.password={text}", f"spark.spark.x.y={text}"]

        config = load(file, flags, {"WINNOW_KAFKA__SASL_PASSWORD": text})

        assert (text, text) == (config.kafka["sasl.password"], config.kafka["ssl.key.password"])
        assert text == config.spark["spark.x.y"]

    @pytest.mark.parametrize("text", ["012345", "0x1F", "1e3", "1_000", "2001-01-01"])
    def test_a_number_among_properties_in_the_file_is_taken_verbatim(self, file: Path, text: str) -> None:
        """Users do not think of quoting a password made of digits."""
        with file.open("a") as writing:
            writing.write(f"  sasl.password: {text}\nspark: {{spark.x.y: {text}}}\n")

        config = load(file, (), {})

        assert (text, text) == (config.kafka["sasl.password"], config.spark["spark.x.y"])

    @pytest.mark.parametrize("text", ["012345", "0x1F", "1_000", "2001-01-01", "on", "NO"])
    def test_a_property_in_a_section_is_taken_verbatim(self, file: Path, text: str) -> None:
        """A section after `--set` or in the environment is read as one in the file."""
        with file.open("a") as writing:
            writing.write(f"  ssl.keystore.password: {text}\n")
        flags = [f"kafka={{ssl.key.password: {text}}}", f"sink={{kafka: {{metadata.broker.list: x, ssl_key: {text}}}}}"]

        config = load(file, flags, {"WINNOW_KAFKA": f"sasl.password: {text}"})

        secrets = dict.fromkeys(("ssl.keystore.password", "sasl.password", "ssl.key.password"), text)
        assert {"bootstrap.servers": "localhost:9092"} | secrets == config.kafka
        assert {"metadata.broker.list": "x", "ssl_key": text} == config.sink.kafka

    @pytest.mark.parametrize("text", ["012345", "a #1", "#abc", "yes", "null", "'x'", "{x}", "2001-01-01"])
    def test_a_password_of_a_store_is_taken_verbatim(self, file: Path, text: str) -> None:
        """As YAML, `a #1` would be `a` and a comment."""
        config = load(file, [f"offsets.store.secret={text}"], {"WINNOW_OFFSETS__STORE__PASSWORD": text})

        assert {"password": text, "secret": text} == config.offsets.store.options

    @pytest.mark.parametrize("text", ["012345", "1_000", "2001-01-01", "on"])
    def test_a_password_in_the_section_of_a_store_is_taken_verbatim(self, file: Path, text: str) -> None:
        """So it is in the file, and in a list of mirrors; what is no secret keeps its meaning."""
        file.write_text(f"{file.read_text()}offsets: {{store: {{password: {text}, port: 012}}}}\n")

        config = load(file, [f"offsets.mirrors=[{{name: redis, password: {text}}}]"], {})

        assert {"password": text, "port": 10} == config.offsets.store.options
        assert [{"password": text}] == [each.options for each in config.offsets.mirrors]

    def test_a_word_of_one_of_is_taken_verbatim(self, file: Path) -> None:
        """As YAML, Norway would be false: a filter that keeps it would drop its lines."""
        words = ["NO", "on", "null", "010", "1.10", "0x1F", "1_000", "12:30", "2026-01-01", "=", "200", "'x'"]
        written = f"{{one-of: [{', '.join(words)}]}}"
        file.write_text(f"{file.read_text()}parser: {{checks: {{a: {written}}}}}\n")
        flags = [f"filter=[{{keep: {{field: b, {written[1:]}}}]"]

        config = load(file, flags, {"WINNOW_PARSER__MORE": f"{{b: {written}}}"})

        taken = {"one-of": [*words[:-1], "x"]}
        assert {"checks": {"a": taken}, "more": {"b": taken}} == config.parser.options
        assert [taken] == [each.check for each in config.filters]

    def test_what_is_no_word_of_one_of_keeps_its_meaning(self, file: Path) -> None:
        """The check refuses an empty item and a section; the value of another key is no word."""
        flags = ["parser.checks={a: {one-of: ['', [no], ]}, b: {one-of: no, time: no}}", "parser.x=[no, [1]]"]

        checks = {"a": {"one-of": ["", [False]]}, "b": {"one-of": False, "time": False}}
        assert {"checks": checks, "x": [False, [1]]} == load(file, flags, {}).parser.options

    def test_a_boolean_that_is_no_secret_is_one(self, file: Path) -> None:
        """Librdkafka and Spark take no `yes`."""
        with file.open("a") as writing:
            writing.write("  enable.ssl.certificate.verification: yes\n")

        config = load(file, ["spark={spark.eventLog.enabled: on}"], {})

        assert "true" == config.kafka["enable.ssl.certificate.verification"] == config.spark["spark.eventLog.enabled"]

    @pytest.mark.parametrize(
        "written",
        ["sink.kafka: {bootstrap.servers: 'centre:1', sasl.password: 0123}", "sink.kafka: {sasl.password: 0123}"],
    )
    def test_the_sinks_cluster_may_stand_at_the_top_of_the_file(self, file: Path, written: str) -> None:
        """`sink.kafka` may be a top-level key; flags add to it, and its values are verbatim."""
        file.write_text(f"{file.read_text()}{written}\n")

        config = load(file, ["sink.kafka.bootstrap.servers=centre:2"], {})

        assert {"bootstrap.servers": "centre:2", "sasl.password": "0123"} == config.sink.kafka == config.output_kafka
        assert "clean-logs" == config.sink.topic

    @pytest.mark.parametrize(
        ("written", "seconds"), [("500ms", 0.5), ("30s", 30), ("5m", 300), ("2", 2), ("0.25", 0.25)]
    )
    def test_durations_have_units(self, file: Path, written: str, seconds: float) -> None:
        """A bare number is in seconds."""
        key = "round.interval" if seconds >= 1 else "commit.interval"

        config = load(file, [f"{key}={written}"], {})

        assert seconds == (config.round_interval if seconds >= 1 else config.commit_interval)

    @pytest.mark.parametrize(
        "flag", ["starting.offsets={timestamp: 1510464542000}", "starting.offsets.timestamp=1510464542000"]
    )
    def test_a_start_can_be_a_time(self, file: Path, flag: str) -> None:
        """starting.offsets takes a timestamp in milliseconds."""
        assert FromTimestamp(timestamp=1510464542000) == load(file, [flag], {}).starting_offsets

    @pytest.mark.parametrize("early", [0, 1, 9_999_999])
    def test_a_start_can_be_the_epoch(self, file: Path, early: int) -> None:
        """It is before each record, whatever its unit, as for `winnow offsets reset`."""
        assert (
            FromTimestamp(timestamp=early) == load(file, [f"starting.offsets.timestamp={early}"], {}).starting_offsets
        )

    @pytest.mark.parametrize("flag", ["starting.offsets={by.duration: 2h}", "starting.offsets.by.duration=2h"])
    def test_a_start_can_be_a_duration(self, file: Path, flag: str) -> None:
        """starting.offsets takes a duration before now."""
        assert FromDuration.model_validate({"by.duration": 7200}) == load(file, [flag], {}).starting_offsets

    def test_parser_options_are_kept_for_the_parser(self, file: Path) -> None:
        """Every key in parser except name belongs to the parser."""
        config = load(file, ["parser={name: delimited, separator: ';'}"], {})

        assert ("delimited", {"separator": ";"}) == (config.parser.name, config.parser.options)

    def test_store_options_are_kept_for_the_store(self, file: Path) -> None:
        """Every key in offsets.store except name belongs to the store, whatever its source."""
        config = load(file, ["offsets.store.name=file"], {"WINNOW_OFFSETS__STORE__PATH": "/var/offsets"})

        assert ("file", {"path": "/var/offsets"}) == (config.offsets.store.name, config.offsets.store.options)


class TestForms:
    """A dot between a section and its key means the same as a nested section."""

    @pytest.mark.parametrize(
        ("written", "keys", "value"),
        [
            ("lineage.headers: true", ("lineage", "headers"), True),
            ("lineage: {headers: true}", ("lineage", "headers"), True),
            ("source.flume.headers: [host]", ("source", "flume.headers"), ["host"]),
            ("source: {flume: {headers: [host]}}", ("source", "flume.headers"), ["host"]),
            ("source: {topics: {pattern: x}}", ("source", "topics.pattern"), "x"),
            ("dead.letters.breaker.ratio: 0.5", ("dead.letters", "breaker", "ratio"), 0.5),
            ("dead: {letters: {breaker.ratio: 0.5}}", ("dead.letters", "breaker", "ratio"), 0.5),
            ("max: {rate: {per.partition: 5}}", ("max.rate.per.partition",), 5),
            ("starting: {offsets: {by.duration: 2h}}", ("starting.offsets", "by.duration"), "2h"),
            ("offsets.store: {name: redis}", ("offsets", "store", "name"), "redis"),
            ("offsets: {store.url: x}", ("offsets", "store", "url"), "x"),
            ("parser.checks: {a.b: {c: d}}", ("parser", "checks", "a.b", "c"), "d"),
            ("kafka.linger.ms: 012", ("kafka", "linger.ms"), "012"),
            ("sink: {kafka.sasl.password: 012}", ("sink", "kafka", "sasl.password"), "012"),
            ("spark.spark.x.y: 1_0", ("spark", "spark.x.y"), "1_0"),
        ],
    )
    def test_a_key_in_the_file(self, file: Path, written: str, keys: tuple[str, ...], value: object) -> None:
        """Each form has one meaning, its line, and stays verbatim among properties."""
        file.write_text(f"{written}\n")

        tree = gather(file, (), {})

        found: Any = tree.values
        for key in keys:
            found = found[key]
        assert value == found
        assert "winnow.yaml:1" == tree.origins[keys]

    @pytest.mark.parametrize(
        ("variable", "keys"),
        [
            ("WINNOW_LINEAGE_HEADERS", ("lineage", "headers")),
            ("WINNOW_GROUP__ID", ("group.id",)),
            ("WINNOW_KAFKA_LINGER_MS", ("kafka", "linger.ms")),
            ("WINNOW_SOURCE__TOPICS__PATTERN", ("source", "topics.pattern")),
        ],
    )
    def test_a_variable(self, variable: str, keys: tuple[str, ...]) -> None:
        """One underscore or two."""
        assert variable == gather(None, (), {variable: "1"}).origins[keys]

    def test_both_forms_merge(self, file: Path) -> None:
        """A section may be written in parts."""
        file.write_text(file.read_text() + "sink.key: houseid\ndead.letters.breaker: {ratio: 0.5}\n")

        config = load(file, ["dead.letters={breaker.minimum: 5}"], {})

        assert ("clean-logs", "houseid") == (config.sink.topic, config.sink.key)
        assert (0.5, 5) == (config.dead_letters.breaker.ratio, config.dead_letters.breaker.minimum)

    @pytest.mark.parametrize(
        ("written", "name"),
        [
            ("sink.topic: x", "sink.topic is set twice: keep one (winnow.yaml:6 and winnow.yaml:11)"),
            ("group: {id: x}", "group.id is set twice: keep one (winnow.yaml:1 and winnow.yaml:11)"),
            (
                "starting.offsets.timestamp: 5\nstarting.offsets: earliest",
                "starting.offsets is set twice: keep one (winnow.yaml:12 and winnow.yaml:11)",
            ),
        ],
    )
    def test_a_key_in_both_forms_is_there_twice(self, file: Path, written: str, name: str) -> None:
        """Both lines are named, as for a key that is there twice in one form."""
        file.write_text(f"{file.read_text()}{written}\n")

        assert [name] == problems(file)

    def test_two_variables_of_one_key(self) -> None:
        """Neither of them wins by chance."""
        found = problems(None, WINNOW_LOG_LEVEL="info", WINNOW_LOG__LEVEL="debug")

        assert ["log.level is set twice: keep one (WINNOW_LOG_LEVEL and WINNOW_LOG__LEVEL)"] == found


class TestOrigins:
    def test_each_source_names_itself(self, file: Path) -> None:
        """A file is named by its line, the environment by its variable, a flag by itself; a default has no origin."""
        origins = read(file, ["sink.topic=x"], {"WINNOW_GROUP_ID": "g"}).origins

        assert "winnow.yaml:4" == origins["source", "format"]
        assert "--set sink.topic" == origins["sink", "topic"]
        assert "WINNOW_GROUP_ID" == origins["group.id",]
        assert ("log.level",) not in origins

    def test_a_section_in_one_line_has_one_line(self, file: Path) -> None:
        """The keys of a section in flow style have the line of the section."""
        file.write_text(file.read_text() + "parser: {name: delimited, fields: [a, b]}\n")

        origins = read(file, (), {}).origins

        assert {"winnow.yaml:11"} == {origin for keys, origin in origins.items() if keys[0] == "parser"}

    def test_a_merged_key_has_the_line_where_it_is_written(self, file: Path) -> None:
        """YAML anchors and merge keys work as in PyYAML's safe_load."""
        file.write_text(file.read_text() + "spark: &base {spark.master: 'local[1]'}\nparser:\n  <<: *base\n  a: 1\n")

        loaded = read(file, (), {})

        assert {"spark.master": "local[1]", "a": 1} == loaded.config.parser.options
        assert ["winnow.yaml:11", "winnow.yaml:14"] == [loaded.origins["parser", key] for key in ("spark.master", "a")]

    def test_keys_with_dots_are_not_sections(self, file: Path) -> None:
        """source.topics does not replace source.topics.pattern."""
        loaded = read(file, ["source={topics.pattern: 'x.*', topics: []}"], {})

        assert "--set source" == loaded.origins["source", "topics.pattern"]

    def test_a_value_in_place_of_a_section_leaves_none_of_its_origins(self, file: Path) -> None:
        """An overridden section leaves no origins."""
        file.write_text(file.read_text() + "starting.offsets: {timestamp: 1}\n")

        origins = read(file, ["starting.offsets=latest"], {}).origins

        assert [("starting.offsets",)] == [keys for keys in origins if keys[0] == "starting.offsets"]


class TestTwice:
    def test_both_lines_of_a_key_are_named(self, file: Path) -> None:
        """PyYAML would silently take the last of two values; duplicate keys are reported in any section."""
        file.write_text(file.read_text() + "  linger.ms: 5\n  bootstrap.servers: other:9092\ngroup.id: x\n")

        assert [
            "kafka.bootstrap.servers is set twice: keep one (winnow.yaml:10 and winnow.yaml:12)",
            "group.id is set twice: keep one (winnow.yaml:1 and winnow.yaml:13)",
        ] == problems(file)

    def test_a_key_in_a_list_is_found_too(self, file: Path) -> None:
        """Lists of sections, as in a parser's options, are searched, too."""
        file.write_text(file.read_text() + "parser: {checks: [{a: 1, a: 2}]}\n")

        assert problems(file)[0].startswith("parser.checks.a is set twice")

    def test_the_same_name_in_two_sections_and_merged_keys_are_left_alone(self, file: Path) -> None:
        """Overriding a merged key is not a duplicate."""
        file.write_text(file.read_text() + "spark: &base {spark.master: x}\nparser:\n  <<: *base\n  spark.master: y\n")

        assert "y" == load(file, (), {}).parser.options["spark.master"]


class TestUnreadable:
    @pytest.mark.parametrize("content", ["[1, 2]", "a: [", "\xff", "a: 2001-99-99", "a: &b {c: *b}", ""])
    def test_a_file_that_is_not_a_configuration_is_named(self, file: Path, content: str) -> None:
        """The message has the path of the file."""
        file.write_bytes(content.encode("latin-1"))

        assert str(file) in problems(file)[0]

    @pytest.mark.parametrize(
        "text", ["a: 1\nsink:\n\ttopic: x\n", "a: 1\nsink: {\n\ttopic: x}\n", "a: 1\n\nsink:\t1\n"]
    )
    def test_a_tab_is_called_a_tab(self, file: Path, text: str) -> None:
        """Nobody sees it in an editor."""
        file.write_text(text)

        tab = "there is a tab, where YAML allows only spaces: replace it"
        assert [f"winnow.yaml:3 is not YAML: {tab}"] == problems(file)

    def test_the_line_that_is_not_yaml_is_named(self, file: Path) -> None:
        """The message has the line, as for any other mistake."""
        file.write_text("group.id: a\nsink: [x\nsource: 1\n")

        assert ["winnow.yaml:3 is not YAML: expected ',' or ']', but got ':'"] == problems(file)

    @pytest.mark.parametrize(
        "secret",
        ["*hunter2", "!hunter2 x", "!hunter2'x", "'a' hunter2", '"\\hunter2"', "[hunter2", "`hunter2", "%hunter2"],
    )
    def test_text_that_is_not_yaml_is_not_repeated(self, file: Path, secret: str) -> None:
        """The message does not quote the line, which may hold a password."""
        file.write_text(f"kafka:\n  sasl.password: {secret}\n")

        assert "hunter2" not in str(problems(file))

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        """The message names a file that is missing or unreadable."""
        assert "No such file" in problems(tmp_path / "none.yaml")[0]

    def test_an_assignment_needs_an_equals_sign(self, file: Path) -> None:
        """Each assignment without one is named, but its possible value is not quoted."""
        found = problems(file, "nonsense", "kafka.sasl.password:hunter2", "=x")

        names = [one.removesuffix(": write it as key=value") for one in found]
        assert ["--set nonsense", "--set kafka.sasl.password", "--set "] == names

    def test_a_flag_that_is_not_yaml_is_text(self, file: Path) -> None:
        """A password may begin with a star."""
        config = load(file, ["kafka.sasl.password=*x", "sink.topic=2001-99-99"], {})

        assert ("*x", "2001-99-99") == (config.kafka["sasl.password"], config.sink.topic)
