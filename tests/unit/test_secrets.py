"""Which values may be shown, and how the others are masked."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import structlog
from confluent_kafka import cimpl

from app import log
from app.errors import ConfigError, PartitionError
from app.model import Partition
from app.offsets.registry import _STORES as STORES
from app.secrets import (
    KAFKA,
    KAFKA_SECRETS,
    MASK,
    OPTIONS,
    hint,
    shown_option,
    shown_property,
    shown_url,
    without_secrets,
)
from app.spark.session import DEFAULTS
from parsers import registry


def properties_of_librdkafka(folder: Path) -> set[str]:
    """Return librdkafka's properties with text or number values."""
    library, libc, file = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(None), folder / "properties"
    libc.fopen.restype = ctypes.c_void_p
    opened = ctypes.c_void_p(libc.fopen(str(file).encode(), b"w"))
    library.rd_kafka_conf_properties_show(opened)
    libc.fclose(opened)
    names = {line.partition("|")[0].strip() for line in file.read_text().splitlines() if line.count("|") > 3}
    objects = ("_cb", "opaque", "default_topic_conf", "interceptors", "ssl_engine_callback_data")
    return {name for name in names if not name.endswith(objects) and name != "Property" and name.strip("-")}


def test_each_property_of_librdkafka_is_judged(tmp_path: Path) -> None:
    """A new property must be added to one of the two lists; until then its value is masked."""
    assert properties_of_librdkafka(tmp_path) == KAFKA | KAFKA_SECRETS
    assert set() == KAFKA & KAFKA_SECRETS


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("linger.ms", "5", "5"),
        ("sasl.password", "hunter2", MASK),
        ("sasl.pasword", "hunter2", MASK),
        ("sasl.password.file", "/s", "/s"),
        ("sasl.pasword.file", "/s", MASK),
        ("sasl.oauthbearer.config", "secret=hunter2", MASK),
        ("bootstrap.servers", "a:1,b:2", "a:1,b:2"),
        ("bootstrap.servers", "SSL://u:hunter2@a:1", "SSL://***@a:1"),
    ],
)
def test_properties_of_librdkafka(name: str, value: str, shown: str) -> None:
    """Only a property known to hold no secret shows its value."""
    assert shown == shown_property("kafka", name, value)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("spark.executor.memory", "4g", "4g"),
        ("spark.executor.extraJavaOptions", "-Xss2m -XX:+UseG1GC", "-Xss2m -XX:+UseG1GC"),
        ("spark.executor.extraJavaOptions", "-Xss2m -Dkey=hunter2", MASK),
        ("spark.driver.extraJavaOptions", "-Xss2m @/java.options", "-Xss2m @/java.options"),
        ("spark.hadoop.fs.s3a.endpoint", "x", MASK),
        ("spark.executorEnv.TOKEN", "hunter2", MASK),
        ("spark.ssl.keyPassword", "hunter2", MASK),
        ("spark.ssl.keyStore", "/k", "/k"),
        ("spark.ui.password", "hunter2", MASK),
        ("spark.executor.memories", "hunter2", MASK),
        ("spark.jars", "https://u:hunter2@h/a.jar", "https://***@h/a.jar"),
        ("spark.jars", "file:///a.jar,/b.jar, https://u:hunter2@h/c", "file:///a.jar,/b.jar, https://***@h/c"),
        ("spark.jars", "/a,file:///b,hdfs:///c@d,s3a://k:hunter2@h/e", "/a,file:///b,hdfs:///c@d,s3a://***@h/e"),
    ],
)
def test_properties_of_spark(name: str, value: str, shown: str) -> None:
    """The same for Spark, whose properties cannot all be listed."""
    assert shown == shown_property("spark", name, value)


def test_what_winnow_sets_itself_is_shown() -> None:
    """The list covers Winnow's own properties; a masked property is not an argument of the JVM."""
    assert dict(DEFAULTS) == {name: shown_property("spark", name, value) for name, value in DEFAULTS.items()}


def test_options_of_plugins() -> None:
    """Options of built-in stores are known, those of other packages are not."""
    assert set(STORES.built_in) <= set(OPTIONS)
    assert ("h", "/ca") == (shown_option("mysql", "host", "h"), shown_option("mysql", "ssl.ca", "/ca"))
    assert MASK == shown_option("mysql", "password", "x") == shown_option("files", "client_kwargs", {"password": "x"})
    assert MASK == shown_option("theirs", "host", "h")
    assert ("/p", MASK) == (shown_option("mysql", "password.file", "/p"), shown_option("theirs", "password.file", "/p"))


@pytest.mark.parametrize("name", registry.PARSERS.built_in)
def test_options_of_parsers(name: str) -> None:
    """No option of a built-in parser holds a secret, so each is shown."""
    options = [option.name for option in registry.describe(name).options]

    assert options
    assert ["x"] * len(options) == [shown_option(name, option, "x") for option in options]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host/0?password=hunter2", "redis://host/0?password=***"),
        ("redis://hunter2@host:6379/0", "redis://***@host:6379/0"),
        ("redis://:hun/ter2@host", "redis://***@host"),
        ("redis://:hun#ter2@host", "redis://***@host"),
        ("redis://host/0?hunter2", "redis://host/0?***"),
        ("redis://host/0?db=1&x=hunter2#hunter2", "redis://host/0?db=1&x=***#***"),
        ("file:///data/a@b", "file:///data/a@b"),
        ("file:///a?x=hunter2,https://hunter2", "file:///a?x=***"),
        ("s3://bucket/path", "s3://bucket/path"),
        ("no url", "no url"),
    ],
)
def test_urls(url: str, shown: str) -> None:
    """Everything but the place and known parameters is masked."""
    assert shown == shown_url(url)


def test_no_secret_stands_in_the_text_of_an_error() -> None:
    """Secrets are masked plainly, URL-encoded and before a host."""
    text = "GET /v1?delegation=hun%2Fter%202 of http://user:hunter@host:80/ by hun/ter 2 at a@b"

    assert "GET /v1?delegation=*** of http://***@host:80/ by *** at a@b" == without_secrets(text, ["hun/ter 2", ""])
    assert "http://host:80 by a@b" == without_secrets("http://host:80 by a@b")
    assert "no file:///a,https://***@h/b" == without_secrets("no file:///a,https://u:hunter2@h/b")


def test_whoever_says_it() -> None:
    """Errors and log lines mask what other systems' clients quote."""
    said = "no answer of https://u:hunter2@h/token?secret=hunter2"

    assert "hunter2" not in str(PartitionError(Partition("raw", 0), said)) + str(ConfigError((said,)))
    assert ConfigError((said,)).problems == ("no answer of https://***@h/token?secret=***",)


def test_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """A log line that contains an unknown error is masked, too."""
    log.configure("info", group="g")
    error = OSError("GET http://h/?token=hunter2")
    structlog.get_logger().warning("failed", error=str(error), exc_info=error)

    assert "hunter2" not in (written := capsys.readouterr().err)
    assert "token=***" in written


def test_a_hint() -> None:
    """The nearest name, if one is close; none for a known name."""
    assert ["did you mean sasl.password?", "", ""] == [hint(each) for each in ("sasl.pasword", "sasl.password", "zzz")]
