"""Each login method with real tasks, without Spark, on a real broker that allows only what Winnow needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]  # not in its __all__

from app.config import Config
from app.driver.check import connected
from app.errors import NotAllowed, Unreachable
from app.kafka.handshake import objection
from app.start import clients
from tests.integration import checks, in_process
from tests.integration.canaries import Canaries
from tests.integration.secured import (
    PASSWORD,
    Right,
    SecuredBroker,
    allow,
    assert_exactly_once,
    forbid,
    needed,
    stage,
    useful,
    write,
)
from tests.integration.service import Event, settings
from tests.integration.tokens import SECRET
from tests.support.waiting import PATIENCE

T = TypeVar("T")

WAYS = ("tls", "mtls", "plain", "SCRAM-SHA-256", "SCRAM-SHA-512", "jwt", "oidc")
LINES = 200
GUESSED = "gu3ssed-9b7a55"


def checked(config: Event) -> tuple[int, list[tuple[str, str]]]:
    """Return the exit code of `check --connect` and its output."""
    return checks.checked(Config.model_validate(config))


def test_the_whole_path(secured: SecuredBroker) -> None:
    """Each login method can check, read, write and commit exactly once, also after a restart, and leaks no secret."""
    configs = {way: stage(secured, way, way) for way in WAYS}

    def work(config: Event) -> tuple[list[int], str]:
        code, said = checked(config)
        return [code, in_process.run(config)[0]], str(said)

    with ThreadPoolExecutor() as threads:
        for config in configs.values():
            write(secured, config["source"]["topics"][0], 0, LINES)
        first = list(threads.map(work, configs.values()))
        for config in configs.values():
            write(secured, config["source"]["topics"][0], LINES, 2 * LINES)
        again = [code for code, _ in threads.map(in_process.run, configs.values())]

    for (way, config), (codes, said), code in zip(configs.items(), first, again, strict=True):
        assert (way, [0, 0, 0]) == (way, [*codes, code]), said
        assert_exactly_once(secured, config, 2 * LINES, 4)
        assert SECRET not in said


Change = Callable[[SecuredBroker], dict[str, str]]
"""Faults of a configuration or of the server it names."""
FAULTS: dict[str, tuple[str, Change, str, str]] = {
    "wrong authority": (
        "tls",
        lambda at: {"ssl.ca.location": str(at.stranger.certificate)},
        "the certificate of 127.0.0.1:.* is not signed by a trusted authority",
        r"set kafka.ssl.ca.location \(now /.*stranger.pem\) to the CA of the brokers' certificates",
    ),
    "a broker's certificate that has expired": (
        "expired",
        lambda _: {},
        r"the certificate of 127.0.0.1:\d+ has expired \(notAfter \w{3} .\d .* GMT\)",
        "renew the broker's certificate",
    ),
    "a certificate for another host": (
        "elsewhere",
        lambda _: {},
        r"the certificate of 127.0.0.1:\d+ is for kafka.example.org, not for 127.0.0.1",
        "use the host names of the certificates in kafka.bootstrap.servers and ",
    ),
    "our certificate has expired": (
        "mtls",
        lambda at: showing(at.authority.sign("late", lives=timedelta(hours=-1))),
        r"the client certificate has expired \(notAfter \w{3} .\d .* GMT\), so 127.0.0.1:\d+ rejects it",
        "renew the certificate in kafka.ssl.certificate.location",
    ),
    "our certificate is not trusted": (
        "mtls",
        lambda at: showing(at.stranger.sign("somebody")),
        r"127.0.0.1:\d+ rejects the client certificate",
        "set kafka.ssl.certificate.location and ssl.key.location to a certificate that the brokers trust",
    ),
    "no certificate": (
        "tls",
        lambda at: {"bootstrap.servers": at.at["mtls"]},
        r"127.0.0.1:\d+ requires a client certificate, but none is configured",
        "set kafka.ssl.certificate.location and ssl.key.location",
    ),
    "wrong password": (
        "plain",
        lambda _: {"sasl.password": GUESSED},
        "Invalid username or password",
        "check the credentials kafka.sasl.username and sasl.password",
    ),
    "wrong password of SCRAM": (
        "SCRAM-SHA-512",
        lambda _: {"sasl.password": GUESSED},
        "invalid credentials with SASL mechanism SCRAM-SHA-512",
        "check the credentials kafka.sasl.username and sasl.password",
    ),
    "unknown user": (
        "SCRAM-SHA-256",
        lambda _: {"sasl.username": "nobody"},
        "invalid credentials with SASL mechanism SCRAM-SHA-256",
        "check the credentials kafka.sasl.username and sasl.password",
    ),
    "wrong mechanism": (
        "plain",
        lambda _: {"sasl.mechanisms": "SCRAM-SHA-256"},
        "Unsupported SASL mechanism",
        "set kafka.sasl.mechanisms to one of PLAIN$",
    ),
    "a login where none is asked for": (
        "plain",
        lambda at: {"bootstrap.servers": at.at["tls"]},
        "not valid in current SASL state",
        "this listener does not use SASL",
    ),
    "no login where one is asked for": (
        "tls",
        lambda at: {"bootstrap.servers": at.at["scram"]},
        r"127.0.0.1:\d+ requires a SASL login \(SCRAM-SHA-256, SCRAM-SHA-512\), but none is configured",
        "set kafka.security.protocol to SASL_SSL, and sasl.mechanisms to one of SCRAM-SHA-256, SCRAM-SHA-512$",
    ),
    "plaintext to a listener with TLS": (
        "tls",
        lambda _: {"security.protocol": "plaintext"},
        r"127.0.0.1:\d+ uses TLS, but security.protocol is PLAINTEXT",
        "set kafka.security.protocol to SSL",
    ),
    "a password in plaintext to a listener with TLS": (
        "SCRAM-SHA-256",
        lambda _: {"security.protocol": "sasl_plaintext"},
        r"127.0.0.1:\d+ uses TLS, but security.protocol is SASL_PLAINTEXT",
        "set kafka.security.protocol to SASL_SSL$",
    ),
    "TLS to a listener in plaintext": (
        "tls",
        lambda at: {"bootstrap.servers": at.bootstrap},
        r"127.0.0.1:\d+ does not use TLS, but security.protocol is SSL",
        "point kafka.bootstrap.servers at a TLS listener, or set security.protocol to PLAINTEXT$",
    ),
    "a token server that refuses": (
        "oidc",
        lambda _: {"sasl.oauthbearer.client.secret": GUESSED},
        "Failed to acquire SASL OAUTHBEARER token",
        "check the credentials kafka.sasl.oauthbearer.client.id and client.secret",
    ),
}
OUTAGES: dict[str, Change] = {
    "a token server that is away": lambda _: {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/token"},
    "a token server that does not answer": lambda at: {"sasl.oauthbearer.token.endpoint.url": at.tokens.silence},
}
"""Faults that clear without an operator: the service waits and says for what."""


def showing(certificate: Path) -> dict[str, str]:
    """Return the settings of a client that presents this certificate."""
    return {"ssl.certificate.location": str(certificate), "ssl.key.location": str(certificate)}


def faulty(broker: SecuredBroker, way: str, change: Change) -> Event:
    """Return a configuration with a fault. Its topics are never reached."""
    config = settings("", group="g", sources=["raw"], sink="clean", dead="dead")
    return config | {"kafka": broker.login(way) | change(broker), "http": {"enabled": False}}


def refused(config: Event) -> str:
    """Return the exit code and output of `run` for a permanent refusal by Kafka."""
    with pytest.raises(NotAllowed) as raised:
        in_process.run(config)
    assert 3 == raised.value.exit_code
    return str(raised.value)


def test_each_fault_has_its_name(secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check --connect` and `run` exit with 3, and both name the fault and the setting that fixes it."""
    monkeypatch.setattr("app.kafka.handshake.SECONDS", PATIENCE)  # all of them probe one broker at once
    configs = {fault: faulty(secured, way, change) for fault, (way, change, _, _) in FAULTS.items()}

    with ThreadPoolExecutor(len(configs)) as threads:
        found = list(threads.map(checked, configs.values()))
        ended = list(threads.map(refused, configs.values()))

    for fault, (code, said), error in zip(FAULTS, found, ended, strict=True):
        _, _, cause, cure = FAULTS[fault]
        (refusal,) = said
        assert (fault, 3, "refuses") == (fault, code, refusal[0])
        for text in (refusal[1], error):
            assert re.search(f"^Kafka .*{cause}.*: .*{cure}", text), (fault, text)
            assert GUESSED not in text


def test_a_certificate_that_only_librdkafka_reads_is_not_judged(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python reads none but those in files, so the broker misses it in the probe. After a timeout that is no reason."""
    monkeypatch.setattr("app.kafka.handshake.SECONDS", PATIENCE)
    files = secured.login("mtls")
    certificate, key = (Path(files.pop(f"ssl.{each}.location")).read_text() for each in ("certificate", "key"))

    assert objection(files) is not None
    assert objection(files | {"ssl.certificate.pem": certificate, "ssl.key.pem": key}) is None


def test_no_fault_lays_a_secret_open(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """No fault leaks a secret, even with all debug logs of librdkafka."""
    caplog.set_level("DEBUG")
    configs = [faulty(secured, way, change) for way, change, _, _ in FAULTS.values() if way not in ("tls", "mtls")]
    for config in configs:
        config["kafka"]["debug"] = "all"

    with ThreadPoolExecutor() as threads:
        told = list(threads.map(checked, configs))

    printed = "".join([caplog.text, *capfd.readouterr(), str(told)])
    assert "Initializing SASL client" in printed  # the debug logs are on
    assert set() == Canaries.of(PASSWORD, SECRET, GUESSED).found(printed)


def test_a_token_server_that_is_away_is_waited_for(secured: SecuredBroker) -> None:
    """`check --connect` exits with 3 and names the token server. The service waits until it is back."""
    for change in OUTAGES.values():
        config = Config.model_validate(faulty(secured, "oidc", change))

        with pytest.raises(Unreachable, match=r"the token server http://127.0.0.1:.* is not responding") as raised:
            connected(config, clients(config), lambda *_: None)

        assert 3 == raised.value.exit_code
        assert "sasl.oauthbearer.token.endpoint.url" in raised.value.cure


def test_each_right_is_needed(secured: SecuredBroker) -> None:
    """Without any one right of docs/security.md, `check --connect` and `run` exit with 3 and name exactly that one."""
    lacking: list[tuple[Event, Right]] = []
    for at in range(len(needed("", "", "", ""))):
        config = stage(secured, "SCRAM-SHA-512", f"lacks-{at}")
        lacking.append((config, needed(*places(config))[at]))
        forbid(secured, lacking[-1][1])

    with ThreadPoolExecutor(len(lacking)) as threads:
        found = list(threads.map(lambda each: checked(each[0]), lacking))
        ended = list(threads.map(lambda each: refused(each[0]), lacking))

    for (_, right), (code, said), error in zip(lacking, found, ended, strict=True):
        (refusal,) = [what for state, what in said if state == "refuses"]
        assert 3 == code
        assert refusal == error
        assert named(right) in refusal


def test_each_other_right_is_missed(secured: SecuredBroker) -> None:
    """With all rights there is no warning. Without an optional one, exactly that one is named."""
    config = stage(secured, "SCRAM-SHA-512", "useful")
    group, source, sink, dead = places(config)
    rights = useful(group, source, sink, dead)
    allow(secured, rights)

    def missed() -> list[str]:
        code, said = checked(config)
        assert 0 == code
        return [what for state, what in said if state == "warns" and "kafka-acls" in what]

    assert [] == missed()
    for right in rights:
        forbid(secured, right)
        (warning,) = missed()
        assert named(right) in warning
        allow(secured, [right])


def places(config: Event) -> tuple[str, str, str, str]:
    """Return group, source, sink and dead letters of a configuration."""
    (source,) = config["source"]["topics"]
    return config["group.id"], source, config["sink"]["topic"], config["dead.letters"]["topic"]


def named(right: Right) -> str:
    """Return the part of the cure that names a right."""
    kind, name, operation = right
    words = "".join(each.title() for each in operation.name.split("_"))
    match kind:
        case ResourceType.TRANSACTIONAL_ID:
            return f"--operation {words} --transactional-id {name} "
        case ResourceType.BROKER:
            return f"--operation {words} --cluster"
    return f"--operation {words} --{kind.name.lower()} {name}"
