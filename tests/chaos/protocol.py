"""The few of Kafka's administrative requests that librdkafka cannot send, each over a connection of its own."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

REASSIGN, QUOTAS = 45, 49
ANSWER_SECONDS, AGAIN_SECONDS, PATIENCE = 10.0, 0.5, 60.0
NO_TAGS = b"\0"


class Refused(Exception):
    """No broker has done what a request asks for."""


def reassign(servers: str, topic: str, partition: int, nodes: Sequence[int]) -> None:
    """Let a partition's replicas move to these nodes; Kafka does so in its own time."""
    moved = struct.pack(">i", partition) + _list(struct.pack(">i", node) for node in nodes) + NO_TAGS
    topics = _list([_text(topic) + _list([moved]) + NO_TAGS])
    _ask(servers, REASSIGN, 0, struct.pack(">i", 30_000) + topics + NO_TAGS, at=4, tagged=True)


def set_quotas(servers: str, user: str, quotas: Mapping[str, float | None]) -> None:
    """Set a user's quotas, such as `producer_byte_rate`; None removes one."""
    operations = [string(name) + struct.pack(">d?", value or 0.0, value is None) for name, value in quotas.items()]
    entry = struct.pack(">i", 1) + string("user") + string(user)
    entry += struct.pack(">i", len(operations)) + b"".join(operations)
    _ask(servers, QUOTAS, 0, struct.pack(">i", 1) + entry + b"\0", at=8)


def _ask(servers: str, api: int, version: int, body: bytes, *, at: int, tagged: bool = False) -> None:
    """
    Ask one of the servers, again until it is done: some of them may be away.

    Args:
        servers: bootstrap servers; any of them may be asked.
        api: the API key.
        version: its version.
        body: the request.
        at: where in the body of the answer the error code is.
        tagged: whether this version has tags in its headers.
    """
    request = struct.pack(">hhih", api, version, 1, -1) + (NO_TAGS if tagged else b"") + body
    deadline = time.monotonic() + PATIENCE
    for server in cycle(servers.split(",")):
        try:
            answer = _answer(server, request)
            (code,) = struct.unpack_from(">h", answer, at + (5 if tagged else 4))
        except (OSError, struct.error) as error:
            problem: object = error
        else:
            if not code:
                return
            problem = f"error {code}: {answer!r}"
        if time.monotonic() > deadline:
            message = f"{server} does not do request {api}: {problem}"
            raise Refused(message)
        time.sleep(AGAIN_SECONDS)


def _answer(server: str, request: bytes) -> bytes:
    host, _, port = server.rpartition(":")
    with socket.create_connection((host, int(port)), ANSWER_SECONDS) as connection, connection.makefile("rb") as answer:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", answer.read(4))
        return answer.read(size)


def _text(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def _list(items: Iterable[bytes]) -> bytes:
    rows = list(items)
    return bytes([len(rows) + 1]) + b"".join(rows)


def string(text: str) -> bytes:
    """Return a STRING of Kafka's protocol, with its length in two bytes."""
    return struct.pack(">h", len(text)) + text.encode()
