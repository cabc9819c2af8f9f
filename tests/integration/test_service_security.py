"""`winnow check` and `winnow run` on a real Spark, with secured connections and changing secrets."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from app.config import Config
from app.kafka.backend import best_backend
from tests.independent import committed, connect_again
from tests.integration.checks import checked
from tests.integration.secured import PASSWORD, SecuredBroker, assert_exactly_once, stage, write
from tests.integration.service import Event, Winnow, refusal
from tests.support.waiting import until

WAYS = ("SCRAM-SHA-512", "mtls", "oidc")
NEW = "another"  # the user's next password
TOKEN_SECONDS = 10


@pytest.fixture
def configs(secured: SecuredBroker, tmp_path: Path) -> list[Event]:
    """Return a configuration for each of WAYS. Passwords are in a file. A test may have changed the user's."""
    secured.set_password(PASSWORD)
    found = [stage(secured, way, way) for way in WAYS]
    (tmp_path / "password").write_text(PASSWORD)
    found[0]["kafka"]["sasl.password.file"] = str(tmp_path / "password")
    del found[0]["kafka"]["sasl.password"]
    return found


def test_secured_connections(secured: SecuredBroker, configs: list[Event], tmp_path: Path) -> None:
    """`check --connect` and `run` succeed on secured connections. Another host's certificate ends `run` with 3."""
    for config in configs:
        write(secured, config["source"]["topics"][0], 0, 100)

    code, said = checked(Config.model_validate(configs[0]))
    with ExitStack() as stack:
        services = [stack.enter_context(Winnow(config, tmp_path, "--until-end")) for config in configs]
        codes = [service.code() for service in services]
    refused = refusal(configs[1] | {"kafka": secured.login("elsewhere")}, tmp_path)

    assert (0, [0, 0, 0]) == (code, codes), said
    for config in configs:
        assert_exactly_once(secured, config, 100, 2)
    assert refused.startswith("winnow: Kafka cannot be reached while ")
    assert "is for kafka.example.org, not for 127.0.0.1" in refused


def test_what_changes_while_the_service_runs(secured: SecuredBroker, configs: list[Event], tmp_path: Path) -> None:
    """
    With a new password, new tokens and certificates of a new authority the services continue without a restart.

    Nothing is lost or duplicated. Clients log in again, every few seconds or because the broker restarts.
    """
    secured.tokens.lives = TOKEN_SECONDS
    written = 0

    def feed() -> None:
        nonlocal written
        for config in configs:
            write(secured, config["source"]["topics"][0], written, written + 100)
        written += 100

    def caught_up() -> bool:
        everything = written + written // 100
        return all(
            {everything} == set(committed(secured.bootstrap, config["group.id"], *config["source"]["topics"]).values())
            for config in configs
        )

    def await_all() -> None:
        until(caught_up, "the end of all sources")

    with ExitStack() as stack:
        services = [stack.enter_context(Winnow(config, tmp_path)) for config in configs]
        feed()
        await_all()
        engines = {service.wait_for("started")["engine"] for service in services}
        given = secured.tokens.given

        (tmp_path / "password").write_text(NEW)
        secured.set_password(NEW)
        feed()
        await_all()

        secured.stop()
        secured.authority.renew()
        secured.sign_certificates()
        secured.start()
        connect_again()
        feed()
        await_all()
        codes = [service.stop() for service in services]

    assert ([0, 0, 0], {best_backend({}).name}) == (codes, engines)
    assert secured.tokens.given > given
    for config in configs:
        assert_exactly_once(secured, config, written, 2 * written // 100)
