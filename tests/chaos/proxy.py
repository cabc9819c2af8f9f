"""
A TCP proxy in front of each listener of the brokers: between them and the service, and between each other.

Rules decide what becomes of a packet: it can come late, never, or after its sender has closed the connection. The proxy
parses only as much of Kafka's protocol as it needs: a request is a frame with a length, which begins with the API key and
the name of the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, NamedTuple, Self

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS = 0, 22, 24, 25
END_TXN, WRITE_MARKERS, TXN_OFFSET_COMMIT = 26, 27, 28
LAST_PLAIN_VERSION = {
    PRODUCE: 8,
    INIT_PRODUCER_ID: 1,
    ADD_PARTITIONS: 2,
    ADD_OFFSETS: 2,
    END_TXN: 2,
    TXN_OFFSET_COMMIT: 2,
}
"""The requests that begin with a transactional id. Later versions have compact lengths, and tags in the header."""
SERVICE, BROKERS, CONTROLLERS = "service", "brokers", "controllers"
"""Who speaks to a listener."""
NO_NODE = 0
"""In the place of a node: the service, or any other program that is no broker."""
NODE = re.compile(r"(?:[A-Za-z-]+-)?(\d+)(?:-[a-z].*)?")
"""The names by which brokers introduce themselves to each other."""
LOOK_SECONDS = 0.05


class Route(NamedTuple):
    """Where a port of the proxy leads: to the port of a node's listener."""

    port: int
    node: int = NO_NODE
    listener: str = SERVICE


class Packet(NamedTuple):
    """A request, whose `frame` is without its length; or a part of an answer, which has no frame."""

    listener: str
    sender: int
    receiver: int
    frame: bytes = b""

    @property
    def api(self) -> int | None:
        """The API key of a request."""
        return struct.unpack_from(">h", self.frame)[0] if self.frame else None

    @property
    def transactional_id(self) -> str:
        """The id with which the body of some requests begins; empty for others, and for those of brokers."""
        if self.listener != SERVICE or self.api not in LAST_PLAIN_VERSION:
            return ""
        api, version, _correlation, size = struct.unpack_from(">hhih", self.frame)
        at = 10 + max(size, 0)
        if version <= LAST_PLAIN_VERSION[api]:
            length, at = struct.unpack_from(">h", self.frame, at)[0], at + 2
        else:
            length, at = self.frame[at + 1] - 1, at + 2  # after the header's tags; ours are shorter than 127
        return self.frame[at : at + max(length, 0)].decode()


class What(IntEnum):
    """What can become of a packet. If rules disagree, the last of these wins."""

    PASSES = 0
    DELAYED = 1
    HELD = 2
    """Its connection is cut, and the request is delivered later nevertheless."""
    RESET = 3
    """Its connection is cut."""
    STALLED = 4
    """It waits, and all behind it, until the rule has gone."""
    DROPPED = 5


class Fate(NamedTuple):
    """What becomes of a packet, and after how long."""

    what: What
    seconds: float = 0.0


PASSES = Fate(What.PASSES)
Rule = Callable[[Packet], Fate | None]
"""Returns the fate of a packet; None if it is not concerned."""


@dataclass(eq=False)
class Connection:
    """A connection through the proxy, and the node that has opened it, once that has said so."""

    route: Route
    client: int = NO_NODE

    def request(self, frame: bytes) -> Packet:
        """Return what the rules may know of a request, given without its length."""
        (size,) = struct.unpack_from(">h", frame, 8)
        if self.route.listener != SERVICE and (found := NODE.fullmatch(frame[10 : 10 + max(size, 0)].decode())):
            self.client = int(found[1])
        return Packet(self.route.listener, self.client, self.route.node, frame)

    @property
    def answer(self) -> Packet:
        """What the rules may know of an answer."""
        return Packet(self.route.listener, self.route.node, self.client)


class Proxy:
    """
    Forwards loopback ports to brokers; a context manager.

    Args:
        routes: port to listen on -> where it leads.
        on_hold: called for each request that is held, with the seconds until its delivery.
    """

    def __init__(self, routes: Mapping[int, Route], on_hold: Callable[[Packet, float], None] = lambda *_: None) -> None:
        """Prepare; nothing listens yet."""
        self.held: Counter[int | None] = Counter()
        """How many requests have been held, by API key."""
        self._rules: tuple[Rule, ...] = ()
        self._routes, self._on_hold = routes, on_hold
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._clients: dict[asyncio.StreamWriter, Connection] = {}
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

    @contextmanager
    def rule(self, rule: Rule) -> Iterator[None]:
        """Apply a rule for the length of the block."""
        self._rules = (*self._rules, rule)
        try:
            yield
        finally:
            self._rules = tuple(each for each in self._rules if each is not rule)

    @contextmanager
    def dropping(self, applies: Callable[[Packet], bool] = lambda packet: packet.listener == SERVICE) -> Iterator[None]:
        """Drop these packets for the length of the block, by default the service's; then cut their connections."""
        with self.rule(lambda packet: Fate(What.DROPPED) if applies(packet) else None):
            yield
        self.cut(applies)

    def cut(self, applies: Callable[[Packet], bool] = lambda packet: packet.listener == SERVICE) -> None:
        """Cut the connections with such answers, by default the service's; clients may connect again at once."""
        self._loop.call_soon_threadsafe(self._cut, applies)

    def _cut(self, applies: Callable[[Packet], bool]) -> None:
        for client, connection in list(self._clients.items()):
            answer = connection.answer
            if applies(answer) or applies(answer._replace(sender=answer.receiver, receiver=answer.sender)):
                client.transport.abort()

    def _fate(self, packet: Packet) -> Fate:
        return max((fate for rule in self._rules if (fate := rule(packet))), default=PASSES)

    async def _settled(self, packet: Packet) -> Fate:
        """Return the fate of a packet when it has waited as long as it must."""
        while (fate := self._fate(packet)).what == What.STALLED:  # noqa: ASYNC110  # a rule tells nobody that it has changed
            await asyncio.sleep(LOOK_SECONDS)
        if fate.what == What.DELAYED:
            await asyncio.sleep(fate.seconds)
        return fate

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # closing it cancels the tasks that still run
            servers = [
                runner.run(asyncio.start_server(self._serving(route), "127.0.0.1", port))
                for port, route in self._routes.items()
            ]
            self._ready.set()
            self._loop.run_forever()
            for server in servers:
                server.close()

    def _serving(
        self, route: Route
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]:
        async def serve(reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
            try:
                from_broker, broker = await asyncio.open_connection("127.0.0.1", route.port)
            except OSError:
                client.transport.abort()
                return
            self._clients[client] = connection = Connection(route)
            answers = asyncio.create_task(self._answers(connection, from_broker, client))
            try:
                held = await self._requests(connection, reader, broker)
            except (OSError, asyncio.IncompleteReadError):
                held = False
            except asyncio.CancelledError:
                broker.transport.abort()
                raise
            finally:
                self._clients.pop(client)
                answers.cancel()
                client.transport.abort()
            if not held:
                broker.close()

        return serve

    async def _requests(
        self, connection: Connection, reader: asyncio.StreamReader, broker: asyncio.StreamWriter
    ) -> bool:
        """Forward requests until the connection must be cut; return whether one is held, which still needs the broker."""
        while True:
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            packet = connection.request(frame)
            what, seconds = await self._settled(packet)
            request = len(frame).to_bytes(4) + frame
            match what:
                case What.DROPPED:
                    continue
                case What.RESET:
                    return False
                case What.HELD:
                    self.held[packet.api] += 1
                    self._on_hold(packet, seconds)
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

    async def _answers(
        self, connection: Connection, broker: asyncio.StreamReader, client: asyncio.StreamWriter
    ) -> None:
        """Forward answers; when the broker closes, close the client's side too."""
        with contextlib.suppress(OSError):
            while answer := await broker.read(1 << 16):
                what, _ = await self._settled(connection.answer)
                if what == What.RESET:
                    break
                if what != What.DROPPED:
                    client.write(answer)
                    await client.drain()
        client.transport.abort()
