"""The output of `winnow check`, and the descriptions for the documentation."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from app.config import clear_environment, commented, exposed_secrets, load, options, read, schema, secret_texts, shown
from app.config.secrets import masked
from app.secrets import KAFKA_SECRETS
from tests.support.docs import ROOT
from tests.support.reference import keys as declared_keys
from tests.unit.config.good import GOOD

OPTIONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


EVERYTHING = {
    "GROUP_ID": "g",
    "SOURCE__TOPICS": "[raw]",
    "SINK__TOPIC": "clean",
    "DEAD_LETTERS__TOPIC": "dead",
    "KAFKA__BOOTSTRAP_SERVERS": "there:9092",
}


class TestShown:
    def test_each_value_has_its_origin(self, file: Path) -> None:
        """The origin is a line of the file, a variable, a flag or the default."""
        file.write_text(file.read_text() + "parser:\n  name: delimited\n  fields: [a, b]\n  checks: {a: {x: 1}}\n")

        lines = shown(
            read(file, ["starting.offsets={timestamp: 5}"], {"WINNOW_KAFKA__LINGER_MS": "5"}),
        ).splitlines()

        for line in (
            "group.id: idc-cleansing  # winnow.yaml:1",
            "  topics: [raw-logs]  # winnow.yaml:3",
            "  topic: clean-logs  # winnow.yaml:6",
            "  timestamp: 5  # --set starting.offsets",
            "    name: kafka  # default",
            "  fields: [a, b]  # winnow.yaml:13",
            "      x: 1  # winnow.yaml:14",
            "  linger.ms: '5'  # WINNOW_KAFKA__LINGER_MS",
            "log.level: info  # default",
        ):
            assert line in lines

    def test_a_command_can_read_the_same_configuration(self, file: Path) -> None:
        """Its options name the file wherever it is called, and what `--set` changed, but no secret."""
        given = ["group.id=my group", "kafka.sasl.password=hunter2", "starting.offsets.by.duration=2h"]
        given += ["parser={name: csv, checks: {a: {matches: x}}}"]
        loaded = read(file, given, {"WINNOW_LOG_LEVEL": "debug"})

        words = shlex.split(options(loaded))

        assert ["-c", str(file.absolute())] == words[:2]
        again = load(file, words[3::2], {})
        assert (loaded.config.parser, loaded.config.starting_offsets) == (again.parser, again.starting_offsets)
        settings = {"group.id=my group", "kafka.sasl.password='***'", "starting.offsets={by.duration: 7200.0}"}
        settings |= {"parser.name=csv", "parser.checks={a: {matches: x}}"}
        assert {"--set"} == set(words[2::2])
        assert settings == set(words[3::2])
        assert "-c winnow.yaml" == options(read(None, [], {"WINNOW_" + key: text for key, text in EVERYTHING.items()}))

    def test_the_shown_configuration_is_valid(self, file: Path) -> None:
        """The output can be used as a file and means the same."""
        loaded = read(
            file,
            [
                "parser={name: delimited, output: '{a}: #{b}', checks: {}}",
                "log.level=debug",
                "starting.offsets.by.duration=2h",
            ],
            {},
        )

        assert masked(loaded.config) == yaml.safe_load(shown(loaded))
        file.write_text(shown(loaded))
        assert loaded.config == load(file, (), {})

    @given(options=st.dictionaries(st.text(min_size=1, max_size=5), OPTIONS, max_size=3))
    def test_any_option_can_be_shown(
        self, tmp_path_factory: pytest.TempPathFactory, options: dict[str, object]
    ) -> None:
        """Line breaks, quotes, hashes and numeric keys survive next to a comment."""
        file = tmp_path_factory.getbasetemp() / "any.yaml"
        file.write_text(yaml.safe_dump(GOOD | {"parser": {"name": "delimited", "checks": options}}))
        loaded = read(file, (), {})

        assert masked(loaded.config) == yaml.safe_load(shown(loaded))


class TestSecrets:
    def test_secrets_are_masked(self, file: Path) -> None:
        """`check` prints the paths of secrets, but never the secrets."""
        mirrors = [
            {"name": "redis", "url": "redis://:hun/ter2@host#hunter2", "password": "hunter2", "pasword": "hunter2"},
            {"name": "theirs", "host": "hunter2", "login": {"a": "hunter2"}},
            {"name": "files", "url": "file:///d", "token_file": "/t"},
        ]
        flags = [
            "kafka.sasl.password=hunter2",
            "kafka.ssl.key.pem=hunter2",
            "kafka.ssl.key.location=/k",
            "kafka.sasl.oauthbearer.assertion.private.key.passphrase=hunter2",
            "spark.spark.ssl.keyPassword=hunter2",
            "spark.spark.authenticate.secret=hunter2",
            "spark.spark.hadoop.fs.s3a.access.key=hunter2",
            "spark.spark.executorEnv.KEY_PASSPHRASE=hunter2",
            "spark.spark.driver.extraJavaOptions=-Da=b -Djavax.net.ssl.trustStorePassword=hunter2",
            "spark.spark.executor.extraJavaOptions=-Xss2m --add-modules=x",
            "spark.spark.nobody.knows=hunter2",
            "kafka.sasl.pasword=hunter2",
            "kafka.ssl.key.pasword.file=hunter2",
            "kafka.sasl.oauthbearer.token.endpoint.url=https://u:hunter2@host/token?key=hunter2",
            "parser={name: theirs, database: hunter2}",
            "kafka.ssl.key.passphrase=hunter2",
            "spark.spark.authenticate.secret.file=/s",
            "offsets.store={name: redis, url: 'redis://hunter2@host/0?password=hunter2&db=1', password.file: /p}",
            f"offsets.mirrors={mirrors}",
        ]

        loaded = read(file, flags, {"WINNOW_KAFKA__SASL_OAUTHBEARER_CLIENT_SECRET": "hunter2"})
        tree = masked(loaded.config)

        assert not {"hunter2", "ter2"} & set(re.findall(r"\w+", str(tree) + shown(loaded)))
        assert "/k" == tree["kafka"]["ssl.key.location"]
        assert "/s" == tree["spark"]["spark.authenticate.secret.file"]
        assert "-Xss2m --add-modules=x" == tree["spark"]["spark.executor.extraJavaOptions"]
        assert "https://***@host/token?key=***" == tree["kafka"]["sasl.oauthbearer.token.endpoint.url"]
        assert {"name": "redis", "url": "redis://***@host/0?password=***&db=1", "password.file": "/p"} == tree[
            "offsets"
        ]["store"]
        assert ["redis://***@host#***", "file:///d"] == [
            each["url"] for each in tree["offsets"]["mirrors"] if "url" in each
        ]
        assert "/t" == tree["offsets"]["mirrors"][2]["token_file"]

    def test_the_password_of_each_url_in_a_list_is_known(self, file: Path) -> None:
        """Whoever quotes one alone, it is masked; brackets in it are no IPv6 address."""
        jars = "file:///a.jar,https://h:80/b.jar,https://bob:hunt@r[2@repo/c.jar,https://alice%21@repo/d.jar"

        loaded = read(file, [f"spark.spark.jars={jars}"], {})

        assert [jars, "hunt@r[2", "alice!"] == secret_texts(loaded.config)
        assert "spark.spark.jars (--set spark.spark.jars)" in exposed_secrets(loaded)

    def test_a_misspelt_key_is_hidden_and_its_right_name_told(self, file: Path) -> None:
        """An unknown key's value may be a secret; the comment suggests the right name."""
        lines = shown(read(file, ["kafka.sasl.pasword=hunter2", "kafka.linger.ms=5"], {})).splitlines()

        assert "  sasl.pasword: '***'  # --set kafka.sasl.pasword; did you mean sasl.password?" in lines
        assert "  linger.ms: '5'  # --set kafka.linger.ms" in lines

    def test_a_secret_can_be_a_file(self, file: Path, tmp_path: Path) -> None:
        """NAME.file is read where the client is created, so that only the path crosses processes."""
        from app.kafka.settings import common

        secret = tmp_path / "password"
        secret.write_text("hunter2\n")
        config = load(file, [f"kafka.sasl.password.file={secret}"], {})

        assert "hunter2" == common(config.kafka)["sasl.password"]
        assert "hunter2" not in str(config)


class TestDescribed:
    def test_every_key_has_a_meaning(self) -> None:
        """The documentation is generated from the descriptions."""
        rows = list(declared_keys())

        assert all(meaning for _, _, meaning in rows)
        assert "source.topics.pattern" in {key for key, _, _ in rows}

    def test_the_offset_store_is_described_with_its_default(self) -> None:
        """The store's name is a declared key; its options are declared by the store."""
        assert [
            ("offsets.store.name", "kafka"),
            ("offsets.mirrors", ""),
            ("offsets.placeholder", "{topic}.winnow-offsets"),
        ] == [row[:2] for row in declared_keys() if row[0].startswith("offsets.")]


class TestLaidOpen:
    def test_secrets_in_the_file_are_named(self, file: Path) -> None:
        """Each secret is named with its place and what to do instead, and so is a file that others can read."""
        kafka = {"ssl.key.password": "hunter2", "sasl.username": "u", "ssl.ca.pem": "x", "ssl.key.location": "/k"}
        written = GOOD | {"kafka": GOOD["kafka"] | kafka}
        written["spark"] = {"spark.authenticate.secret": "hunter2", "spark.hadoop.fs.s3a.secret.key": "hunter2"}
        urls = ("redis://:hunter2@h", "redis://h")
        written["offsets"] = {"mirrors": [{"name": "redis", "url": url} for url in urls]}
        file.write_text(yaml.safe_dump(written))
        file.chmod(0o604)
        texts = file.read_text().splitlines()
        lines = {text.strip().partition(":")[0]: at for at, text in enumerate(texts, 1)}
        in_list = next(at for at, text in enumerate(texts, 1) if "hunter2@h" in text)

        said = exposed_secrets(read(file, ["sink.kafka={bootstrap.servers: h, sasl.password: hunter2}"], {}))

        assert "hunter2" not in said
        assert (
            "secrets are stored where others may see them: "
            f"kafka.ssl.key.password ({file}:{lines['ssl.key.password']}): use ssl.key.password.file: /path; "
            "sink.kafka.sasl.password (--set sink.kafka): use sasl.password.file: /path; "
            f"offsets.mirrors.0.url ({file}:{in_list}): "
            "remove the password from the URL, and use password.file: /path; "
            f"spark.spark.authenticate.secret ({file}:{lines['spark.authenticate.secret']}): "
            "use spark.authenticate.secret.file: /path on Kubernetes, "
            "or set WINNOW_SPARK__SPARK_AUTHENTICATE_SECRET in the environment; "
            f"spark.spark.hadoop.fs.s3a.secret.key ({file}:{lines['spark.hadoop.fs.s3a.secret.key']}): "
            "set WINNOW_SPARK__spark_hadoop_fs_s3a_secret_key in the environment; "
            f"every user of this machine can read {file}: chmod 600 it"
        ) == said

    def test_what_only_its_reader_sees_is_no_matter(self, file: Path) -> None:
        """Secrets in the environment, paths, and a file that only its owner can read are fine."""
        environment = {
            "WINNOW_KAFKA__SASL_PASSWORD": "hunter2",
            "WINNOW_OFFSETS__STORE": "{name: x, password: hunter2}",
        }
        file.chmod(0o600)

        assert "" == exposed_secrets(read(file, ["kafka.ssl.key.password.file=/s"], environment))
        assert "chmod" not in exposed_secrets(read(file, ["kafka.ssl.key.password=hunter2"], environment))
        file.write_text(yaml.safe_dump(GOOD | {"offsets": {"store": {"name": "x", "password": "hunter2"}}}))
        assert exposed_secrets(read(file, (), {})).endswith("use password.file: /path")

    def test_java_options_are_arguments_wherever_they_come_from(self, file: Path) -> None:
        """Java reads the file that is advised, and only its path is an argument."""
        variable = "WINNOW_SPARK__spark_driver_extraJavaOptions"

        assert exposed_secrets(read(file, (), {variable: "-Djavax.net.ssl.trustStorePassword=hunter2"})).endswith(
            f"spark.spark.driver.extraJavaOptions ({variable}): it would be an argument of Java: write such options "
            "into a file, and set spark.driver.extraJavaOptions: '@/path'"
        )
        assert "" == exposed_secrets(read(file, (), {variable: "-Da=b @/password"}))

    @pytest.mark.parametrize("name", sorted(KAFKA_SECRETS))
    def test_a_file_that_is_advised_is_read(self, file: Path, tmp_path: Path, name: str) -> None:
        """Winnow reads the file for each secret property of librdkafka."""
        from app.kafka.settings import common

        (secret := tmp_path / "secret").write_text("hunter3\n")
        advised = re.search(r"use (\S+): /path$", exposed_secrets(read(file, [f"kafka.{name}=hunter2"], {})))
        option = advised[1] if advised else f"{name}.file"

        assert "hunter3" == common(load(file, [f"kafka.{option}={secret}"], {}).kafka)[name]

    @pytest.mark.parametrize(
        "keys",
        [
            ("spark", "spark.hadoop.fs.s3a.secretKey"),
            ("spark", "spark.hadoop.fs.s3a.bucket.my-logs.secret.key"),
            ("spark", "spark.executorEnv.AWS_SECRET_ACCESS_KEY"),
            ("parser", "api_token"),
        ],
    )
    def test_a_variable_that_is_advised_is_read(self, file: Path, keys: tuple[str, str]) -> None:
        """Not every name can be part of a variable's name, and a parser reads no file."""
        section, name = keys
        other = "name" if section == "parser" else "spark.app.name"
        said = exposed_secrets(read(file, [f"{section}={{{other}: theirs, {name}: hunter2}}"], {}))

        advised = re.search(r"set (\w+)(?:=(.+))? in the environment$", said)
        assert advised
        config = load(file, (), {advised[1]: advised[2].replace("…", "hunter3") if advised[2] else "hunter3"})

        assert "hunter3" == config.model_dump(by_alias=True)[section][name]

    def test_what_is_started_inherits_no_configuration(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A JVM and its workers inherit the driver's environment without the secrets in it."""
        monkeypatch.setenv("WINNOW_KAFKA__SASL_PASSWORD", "hunter2")
        monkeypatch.setenv("WINNOWER", "somebody else's")

        clear_environment()

        assert "hunter2" not in os.environ.values()
        assert "somebody else's" == os.environ["WINNOWER"]


CHECKER = jsonschema.Draft202012Validator(schema())


def schema_of(name: str) -> dict[str, Any]:
    """Return the schema of a key, following references between sections."""
    at, rest = schema(), name
    while rest:
        key = next(
            each for each in sorted(at["properties"], key=len, reverse=True) if f"{rest}.".startswith(f"{each}.")
        )
        at, rest = at["properties"][key], rest[len(key) + 1 :]
        if "$ref" in at and rest:
            at = schema()["$defs"][at["$ref"].rpartition("/")[2]]
    return at


class TestSchema:
    """The JSON schema accepts the same single keys as the configuration."""

    def test_the_schema_is_one(self) -> None:
        """The schema is valid, so editors can read it."""
        jsonschema.Draft202012Validator.check_schema(schema())

    def test_every_key_is_in_it_with_its_meaning(self) -> None:
        """Editors show the documented descriptions."""
        meanings = {name: meaning for name, _, meaning in declared_keys()}

        assert meanings == {name: found["description"] for name in meanings if (found := schema_of(name))}

    @pytest.mark.parametrize(
        "more",
        [
            {},
            {"commit.interval": "500ms", "round.interval": 10},
            {"source": {"topics": "a,b"}, "kafka": {"linger.ms": 5, "enable.ssl.certificate.verification": True}},
            {"starting.offsets": {"by.duration": "2h"}},
            {"lineage.headers": True, "kafka.linger.ms": 5, "dead.letters.breaker": {"ratio": 0.5}},
            {"starting.offsets": "latest", "parser": {"name": "delimited", "fields": ["a"], "separator": ","}},
            {"offsets": {"mirrors": [{"name": "redis", "url": "redis://cache"}]}},
            {"parser": {"samples": [{"line": "", "reason": "empty"}]}},
            {"dead.letters": {"topic": "x", "breaker.ratio": 0.5}, "offsets": {"store.name": "none"}},
            {"sink": {"topic": "x", "kafka.linger.ms": 5}, "starting.offsets.by.duration": "2h"},
        ],
        ids=str,
    )
    def test_what_is_right_is_taken(self, more: dict[str, Any]) -> None:
        """Durations as text or numbers, lists as text, numbers as properties, plugin options, dots between sections."""
        assert [] == [error.message for error in CHECKER.iter_errors(GOOD | more)]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"sorce": 1},
            {"source": {"topics.patern": "x"}},
            {"out.of.range": "perhaps"},
            {"sink": {"topik": "x"}},
            {"starting.offsets": {"timestamp": -1}},
        ],
        ids=str,
    )
    def test_what_is_wrong_is_marked(self, wrong: dict[str, Any]) -> None:
        """A misspelt key and an invalid value are errors."""
        assert [error.message for error in CHECKER.iter_errors(GOOD | wrong)]

    def test_the_example_in_the_readme_is_taken(self) -> None:
        """The example that users copy is valid."""
        (example,) = re.findall(r"```yaml\n(group\.id.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)

        assert [] == [error.message for error in CHECKER.iter_errors(yaml.safe_load(example))]


TEXTS = st.text() | st.sampled_from(["2026", "yes", "a: b", "# c", "\t", "\x85", "{a}|{b}", "'", "- x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


class TestCommented:
    """A configuration with comments is YAML, and its comments are the declared meanings."""

    @settings(deadline=None)
    @given(values=st.dictionaries(TEXTS, VALUES, max_size=4))
    def test_it_is_read_as_it_was(self, values: Mapping[str, Any]) -> None:
        """Whatever the keys and values are."""
        assert values == (yaml.safe_load(commented(values, {})) or {})

    def test_the_comments_are_the_declared_meanings(self) -> None:
        """Those of the documentation, and of the parser's options; a section has none."""
        values = {
            "group.id": "g",
            "sink": {"topic": "t"},
            "parser": {"name": "json", "fields": ["a"], "checks": {"a": "ip"}},
        }
        meanings = {key: meaning for key, _, meaning in declared_keys()}

        assert [
            f"# {meanings['group.id']}",
            "group.id: g",
            "sink:",
            f"  # {meanings['sink.topic']}",
            "  topic: t",
            "parser:",
            f"  # {meanings['parser.name']}",
            "  name: json",
            "  # which they are",
            "  fields: [a]",
            "  checks:",
            "    a: ip",
        ] == commented(values, {"fields": "which they are", "output": "unused"}).splitlines()
