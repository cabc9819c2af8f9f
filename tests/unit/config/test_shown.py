"""The output of `winnow check`, and the declarations from which README's table is made."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.config import described, load, masked, read, shown
from tests.unit.config.good import GOOD

OPTIONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


class TestShown:
    def test_each_value_has_its_origin(self, file: Path) -> None:
        """A line of the file, a variable, a flag or the default."""
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

    def test_the_shown_configuration_is_valid(self, file: Path) -> None:
        """The output can be used as a file and means the same."""
        loaded = read(
            file,
            ["parser.output='{a}: #{b}'", "parser.empty={}", "log.level=debug", "starting.offsets.by.duration=2h"],
            {},
        )

        assert masked(loaded.config) == yaml.safe_load(shown(loaded))
        file.write_text(shown(loaded))
        assert loaded.config == load(file, (), {})

    @given(options=st.dictionaries(st.text(min_size=1, max_size=5), OPTIONS, max_size=3))
    def test_any_option_can_be_shown(
        self, tmp_path_factory: pytest.TempPathFactory, options: dict[str, object]
    ) -> None:
        """Line breaks, quotes, hashes and numeric keys survive their comment."""
        file = tmp_path_factory.getbasetemp() / "any.yaml"
        file.write_text(yaml.safe_dump(GOOD | {"offsets": {"store": options | {"name": "x"}}}))
        loaded = read(file, (), {})

        assert masked(loaded.config) == yaml.safe_load(shown(loaded))


class TestSecrets:
    def test_secrets_are_masked(self, file: Path) -> None:
        """`check` prints the paths of secrets, never the secrets."""
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
            "spark.spark.executor.extraJavaOptions=-Xss2m",
            "kafka.ssl.key.passphrase=hunter2",
            "offsets.store.Password=hunter2",
            "offsets.store.login={user: u, password: hunter2}",
            "offsets.store.tokens={a: hunter2}",
            "offsets.store.hosts=[{name: h, password: hunter2}]",
            "spark.spark.authenticate.secret.file=/s",
            "offsets.store.password=hunter2",
        ]

        loaded = read(file, flags, {"WINNOW_KAFKA__SASL_OAUTHBEARER_CLIENT_SECRET": "hunter2"})
        tree = masked(loaded.config)

        assert "hunter2" not in str(tree) + shown(loaded)
        assert "/k" == tree["kafka"]["ssl.key.location"]
        assert "/s" == tree["spark"]["spark.authenticate.secret.file"]
        assert "-Xss2m" == tree["spark"]["spark.executor.extraJavaOptions"]
        assert "u" == tree["offsets"]["store"]["login"]["user"]

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
        """Help and README are generated from the meanings."""
        rows = list(described())

        assert all(meaning for _, _, meaning in rows)
        assert "source.topics.pattern" in {key for key, _, _ in rows}

    def test_the_offset_store_is_described_with_its_default(self) -> None:
        """The store's name is a declared key; its options are declared by the store."""
        assert [("offsets.store.name", "kafka")] == [row[:2] for row in described() if row[0].startswith("offsets.")]
