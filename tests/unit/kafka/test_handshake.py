"""Probing objects only on an answer: a server that is down, silent or not a broker raises no objection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.kafka import handshake
from app.kafka.handshake import Objection, objection
from tests.support.waiting import PATIENCE

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """Listen, and answer each connection with these bytes and close it; with None, never answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_all() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 10)
                    connection.sendall(answer or b"")

        if answer is not None:
            threading.Thread(target=answer_all, daemon=True).start()
        yield "127.0.0.1:{}".format(*server.getsockname()[1:])
        server.shutdown(socket.SHUT_RDWR)  # to close it would not wake the thread


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_is_away_is_no_objection(protocol: str) -> None:
    """The port is closed, or the host name unknown."""
    for server in ("127.0.0.1:9", "nowhere.invalid:9092", "", "127.0.0.1:no-port"):
        assert objection({"bootstrap.servers": server, "security.protocol": protocol}) is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x06\x00\x00"])
def test_what_is_no_broker_is_no_objection(
    protocol: str, answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A starting broker accepts connections before it answers, and a proxy closes them. Neither shows a cause."""
    monkeypatch.setattr(handshake, "SECONDS", 0.1)
    with answering(answer) as server:
        assert objection({"bootstrap.servers": server, "security.protocol": protocol}) is None


def test_a_login_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The objection lists the listener's mechanisms, and the cure names the section of the configuration."""
    monkeypatch.setattr(handshake, "SECONDS", PATIENCE)
    names = b"".join(len(each).to_bytes(2, "big") + each for each in (b"SCRAM-SHA-512", b"PLAIN"))
    body = b"\x00\x00\x00\x00" + b"\x00\x21" + b"\x00\x00\x00\x02" + names
    with answering(len(body).to_bytes(4, "big") + body) as server:
        found = objection({"bootstrap.servers": f"PLAINTEXT://{server}"}, "sink.kafka")

    assert found == Objection(
        f"{server} requires a SASL login (PLAIN, SCRAM-SHA-512), but none is configured",
        "set sink.kafka.security.protocol to SASL_PLAINTEXT, and sasl.mechanisms to one of PLAIN, SCRAM-SHA-512",
    )


@pytest.mark.parametrize(
    "url", ["https://idp:99999/token", "https://u:hunter2/token", "https://idp..example/token", "https://[::1/token"]
)
def test_an_url_of_no_token_server_is_an_objection(url: str) -> None:
    """It does not pass by itself, and what stands for its port may be a password."""
    name = "sasl.oauthbearer.token.endpoint.url"

    found = objection({name: url, "sasl.oauthbearer.method": "oidc"})

    assert found is not None
    assert found.cause.startswith(f"kafka.{name} is ")
    assert "hunter2" not in found.cause
    assert not found.passes


def test_what_is_no_address_of_a_broker_is_left_out() -> None:
    assert objection({"bootstrap.servers": "[::1"}) is None
