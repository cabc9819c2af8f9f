"""How settings that librdkafka refuses are reported before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from app.kafka import settings
from app.kafka.ages import SMALL
from app.kafka.offsets import KafkaGroupOffsets
from app.kafka.validation import refusals
from app.model import Guarantee
from app.offsets.contract import StoreContext

EXACTLY = Guarantee.EXACTLY_ONCE
BROKER = {"bootstrap.servers": "nowhere:9092"}


@pytest.mark.parametrize("guarantee", Guarantee)
def test_good_settings_are_taken(guarantee: Guarantee) -> None:
    assert () == refusals(BROKER | {"linger.ms": "5", "fetch.wait.max.ms": "50"}, guarantee)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger.mss", "hunter2"),
        ("linger.ms", "hunter2"),
        ("compression.type", "hunter2"),
        ("linger.ms", "99999999999"),
        ("ssl.ca.location", "/hunter2/ca.crt"),
        ("ssl.key.pem", "hunter2"),
        ("acks", "1"),
        ("socket.timeout.ms", "5"),
        ("error_cb", "hunter2"),
        ("security.protocol", "hunter2"),
    ],
)
def test_the_property_is_named_and_its_value_is_not_repeated(name: str, value: str) -> None:
    """Each refusal is one line that names the property to fix."""
    security = {} if name == "security.protocol" else {"security.protocol": "ssl"}

    (refusal,) = refusals(BROKER | security | {name: value}, EXACTLY)

    assert name == refusal.name
    assert refusal.problem.startswith(f"kafka.{name} is ")
    assert "hunter2" not in refusal.problem
    assert "value 5 " not in refusal.problem
    assert ("not readable" in refusal.problem) == name.endswith(".location")
    assert 1 == len(refusal.problem.splitlines())


def test_the_right_name_is_told() -> None:
    """A misspelt name gets the intended one as a hint, without its value."""
    (refusal,) = refusals(BROKER | {"sasl.pasword": "hunter2"}, EXACTLY)

    assert "kafka.sasl.pasword is unknown to librdkafka: did you mean sasl.password?" == refusal.problem


def test_every_wrong_property_is_told() -> None:
    """Librdkafka itself stops at the first; settings that then do not fit together are no further problem."""
    wrong = {"linger.mss": "5", "sasl.pasword": "hunter2", "compression.type": "best", "sasl.mechanism": "PLAIN"}

    found = refusals(BROKER | wrong | {"security.protocol": "sasl_plaintext", "linger.ms": "5"}, EXACTLY)

    assert ["compression.type", "linger.mss", "sasl.pasword"] == sorted(each.name for each in found)
    assert "did you mean linger.ms?" in str(found)
    assert "hunter2" not in str(found)


def test_settings_that_do_not_fit_together_are_told_as_such() -> None:
    """If librdkafka names none of the user's properties, none is blamed."""
    together = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}

    assert [("", "kafka: these settings are rejected by librdkafka: sasl.username and sasl.password must be set")] == [
        *refusals(BROKER | together, EXACTLY)
    ]


@pytest.mark.parametrize(
    "limits",
    [
        {"receive.message.max.bytes": "20000000"},
        {"message.max.bytes": "10000000", "fetch.max.bytes": "8000000"},
        {"receive.message.max.bytes": "2000000", "fetch.max.bytes": "1000000"},
    ],
)
def test_what_is_taken_for_a_task_is_taken_for_every_consumer(limits: dict[str, str]) -> None:
    """Otherwise the service would wait for ever: it takes a later refusal for a file that is being replaced."""
    kafka = BROKER | limits
    assert () == refusals(kafka, EXACTLY)

    KafkaGroupOffsets(StoreContext("group", kafka, {})).close()
    for own in ({"auto.offset.reset": "error"}, SMALL):
        Consumer(settings.reader(kafka, "group") | own, logger=settings.SILENT).close()


@pytest.mark.parametrize("name", ["message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms"])
@pytest.mark.parametrize(
    ("guarantee", "transaction_seconds", "right"),
    [(EXACTLY, 60.0, False), (EXACTLY, 300.0, True), (Guarantee.AT_LEAST_ONCE, 60.0, True), (None, 60.0, True)],
)
def test_a_timeout_must_fit_the_transactions(
    name: str, guarantee: Guarantee | None, transaction_seconds: float, *, right: bool
) -> None:
    """Those that are configured, and only where there are any."""
    found = refusals(BROKER | {name: "120000"}, guarantee, "kafka", transaction_seconds)

    assert right == (not found)


def test_each_refused_property_is_told_once(tmp_path: Path) -> None:
    """Consumer and producer refuse the same property. A value from a file is named as the user wrote it."""
    key = tmp_path / "key.pem"
    key.write_text("hunter2")

    (refusal,) = refusals(BROKER | {"security.protocol": "ssl", "ssl.key.pem.file": str(key)}, EXACTLY)

    assert "ssl.key.pem.file" == refusal.name
    assert "hunter2" not in refusal.problem


@pytest.mark.parametrize("section", ["kafka", "sink.kafka"])
def test_a_secret_that_cannot_be_read_is_a_refusal(section: str, tmp_path: Path) -> None:
    """A missing mount is noticed before Spark starts."""
    (refusal,) = refusals(BROKER | {"sasl.password.file": str(tmp_path / "none")}, EXACTLY, section)

    assert refusal.problem.startswith(f"{section}.sasl.password.file: cannot read")


@pytest.mark.parametrize("name", ["bootstrap.servers", "sasl.oauthbearer.token.endpoint.url"])
def test_nothing_is_connected(name: str) -> None:
    """`winnow check` without --connect contacts neither a broker nor a token server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        kafka = {
            "bootstrap.servers": "nowhere:9092",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "x",
            "sasl.oauthbearer.client.secret": "hunter2",
            "sasl.oauthbearer.token.endpoint.url": f"http://{address}/",
        }
        assert () == refusals(kafka if name != "bootstrap.servers" else {name: address}, EXACTLY)

        with pytest.raises(TimeoutError):
            server.accept()
