"""
A TCP proxy between clients and brokers. It can delay and drop requests, cut connections, and deliver commits late.

It parses only as much of Kafka's protocol as it needs: a request is a frame with a length, and the first two bytes of
a frame are the API key.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

TXN_OFFSET_COMMIT, END_TXN = 28, 26
LAST_PLAIN_VERSION = {TXN_OFFSET_COMMIT: 2, END_TXN: 2}
"""Later versions have compact lengths, and tags in the header."""


class Ending(NamedTuple):
    """A request that ends a transaction, or adds the offset that the transaction commits."""

    api: int
    transactional_id: str


def ending(frame: bytes) -> Ending | None:
    """Parse a request without its length; None if it is of another kind."""
    api, version, _correlation, client = struct.unpack_from(">hhih", frame)
    if api not in LAST_PLAIN_VERSION:
        return None
    at = 10 + max(client, 0)
    if version <= LAST_PLAIN_VERSION[api]:
        (length,) = struct.unpack_from(">h", frame, at)
        at += 2
    else:
        length = frame[at + 1] - 1  # after the header's tags; one byte of compact length is enough for our ids
        at += 2
    return Ending(api, frame[at : at + length].decode())


class Proxy:
    """
    Forwards loopback ports to brokers; a context manager.

    Args:
        routes: port to listen on -> port of the broker.
        on_hold: called for each request that is held, with the seconds until its delivery.
    """

    def __init__(self, routes: Mapping[int, int], on_hold: Callable[[Ending, float], None] = lambda *_: None) -> None:
        """Prepare; nothing listens yet."""
        self.delay = 0.0
        """Seconds by which each request is delayed."""
        self.dropping = False
        """Whether all requests and answers are dropped."""
        self.hold_seconds: Callable[[int], float | None] = lambda api: None
        """Given the API key of an `Ending`, returns how long to hold it while its connection is cut; None forwards it."""
        self.held = 0
        """How many requests have been held."""
        self._routes, self._on_hold = routes, on_hold
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._clients: set[asyncio.StreamWriter] = set()
        self._late: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening and cut all connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self) -> None:
        """Cut all connections; clients may connect again at once."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for client in list(self._clients):
            client.transport.abort()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # closing it cancels the tasks that still run
            servers = [
                runner.run(asyncio.start_server(self._serving(target), "127.0.0.1", port))
                for port, target in self._routes.items()
            ]
            self._ready.set()
            self._loop.run_forever()
            for server in servers:
                server.close()

    def _serving(
        self, target: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]:
        async def serve(reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
            try:
                from_broker, broker = await asyncio.open_connection("127.0.0.1", target)
            except OSError:
                client.transport.abort()
                return
            self._clients.add(client)
            answers = asyncio.create_task(self._answers(from_broker, client))
            try:
                held = await self._requests(reader, broker)
            except (OSError, asyncio.IncompleteReadError):
                held = False
            except asyncio.CancelledError:
                broker.transport.abort()
                raise
            finally:
                self._clients.discard(client)
                answers.cancel()
                client.transport.abort()
            if not held:
                broker.close()

        return serve

    async def _requests(self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter) -> bool:
        """Forward requests until one is held; then return True, because the connection must be cut."""
        while True:
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            if self.dropping:
                continue
            if self.delay:
                await asyncio.sleep(self.delay)
            request = len(frame).to_bytes(4) + frame
            if (found := ending(frame)) and (seconds := self.hold_seconds(found.api)) is not None:
                self.held += 1
                self._on_hold(found, seconds)
                late = asyncio.create_task(self._send_late(broker, request, seconds))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
                return True
            broker.write(request)
            await broker.drain()

    async def _send_late(self, broker: asyncio.StreamWriter, request: bytes, seconds: float) -> None:
        """Deliver a held request, as a network may do after its sender has closed the connection."""
        with contextlib.closing(broker), contextlib.suppress(OSError):
            await asyncio.sleep(seconds)
            broker.write(request)
            await broker.drain()
            await asyncio.sleep(1)

    async def _answers(self, broker: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Forward answers; when the broker closes, close the client's side too."""
        with contextlib.suppress(OSError):
            while answer := await broker.read(1 << 16):
                if not self.dropping:
                    client.write(answer)
                    await client.drain()
        client.transport.abort()
