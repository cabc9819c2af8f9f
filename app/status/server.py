"""The driver's HTTP server. Its threads read the last snapshot and never ask Kafka or Spark."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator
from http import HTTPMethod, HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import BinaryIO

from app.errors import NotUsable
from app.events import Event
from app.runtime import REAL, Runtime
from app.status.answers import PAGE_POLICY, Answer, Answers
from app.status.snapshot import Snapshot

READING = (HTTPMethod.GET, HTTPMethod.HEAD)
# The time limit for a client to send its request and read the response.
CLIENT_SECONDS = 10.0
MOST_CONNECTIONS = 64
ROOM_SECONDS = 0.05
LARGEST_HEAD = 1 << 16
STOP_SECONDS = 0.05
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": PAGE_POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_PORT = re.compile(r":\d*$")
# A name without a dot, such as that of a Compose or Kubernetes service, cannot be registered by a stranger.
_WITHOUT_A_DOT = re.compile(r"[a-z0-9_-]+")


@contextlib.contextmanager
def serve(
    address: str,
    port: int,
    snapshot: Callable[[], Snapshot],
    runtime: Runtime = REAL,
    allowed_hosts: Iterable[str] = (),
) -> Iterator[str]:
    """
    Serve requests while the block runs; yield the page's URL. Port 0 is any free one.

    Browsers may use `allowed_hosts`, in addition to the names that always mean this server.

    Raises:
        NotUsable: the server cannot listen on the address.
    """
    answers, names = Answers(snapshot, runtime.wall_clock), {name.lower() for name in (address, *allowed_hosts)}
    try:
        server = _Server(address, port, answers, names)
    except (OSError, OverflowError) as error:
        raise NotUsable(
            f"the status page cannot listen on {address}, port {port} ({error})",
            "set http.port to a free port or to 0 (any), or disable the page with http.enabled: false",
        ) from error
    url = f"http://{f'[{address}]' if ':' in address else address}:{server.server_address[1]}/"
    with server:
        threading.Thread(target=server.serve_forever, args=(STOP_SECONDS,), name="winnow-http", daemon=True).start()
        try:
            Event.STATUS_PAGE_UP.log(url=url)
            yield url
        finally:
            server.shutdown()


class _Server(ThreadingHTTPServer):
    """
    Makes room for each new connection by ending the oldest one, and ends each connection after some seconds.

    Slow clients displace each other, but not a client that sends its request and leaves.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # with the default of 5, the sixth client of a burst waits a second

    def __init__(self, address: str, port: int, answers: Answers, names: Container[str]) -> None:
        self.answers, self.names = answers, names
        self._room = threading.Semaphore(MOST_CONNECTIONS)
        self._since: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        super().__init__(found[0][4][:2], _Handler)  # type: ignore[arg-type]  # the host and port of either family

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]  # TCP only
        """Serve a connection in a thread, once there is room for one."""
        while not self._room.acquire(blocking=False):
            self._end(1)
            if self._room.acquire(timeout=ROOM_SECONDS):
                break
        with self._lock:
            self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]  # TCP only
        """Close a connection and make room for another."""
        super().shutdown_request(request)
        with self._lock:
            self._since.pop(request, None)
        self._room.release()

    def service_actions(self) -> None:
        """End connections that have taken too long. The base class calls this continually."""
        latest = time.monotonic() - CLIENT_SECONDS
        with self._lock:
            old = sum(since < latest for since in self._since.values())
        self._end(old)

    def _end(self, count: int) -> None:
        """Shut down the oldest connections. Their threads notice in any wait, and leave."""
        with self._lock:
            for connection in list(self._since)[:count]:
                del self._since[connection]
                with contextlib.suppress(OSError):  # it has just ended
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect."""


class _Head:
    """The head of a request, limited in size."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = LARGEST_HEAD + 1  # one more, so that an oversized request line is recognized as one
        self.close = file.close

    def readline(self, limit: int) -> bytes:
        """Return the next line, or the beginning of an oversized one."""
        if not self._left:
            raise LineTooLong("head")  # its argument is not a sentence
        line = self._file.readline(min(limit, self._left))
        self._left -= len(line)
        return line


class _Handler(BaseHTTPRequestHandler):
    """Serves one connection with one request, as in HTTP 1.0."""

    server: _Server
    server_version, sys_version = "winnow", ""
    default_request_version = "HTTP/1.0"
    timeout = CLIENT_SECONDS

    def setup(self) -> None:
        super().setup()
        self.rfile = _Head(self.rfile)  # type: ignore[assignment,arg-type]  # the part of the interface that is used

    def parse_request(self) -> bool:
        """Read the head; return whether to answer the request. A refused one gets its response here."""
        if not super().parse_request():
            return False
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        refused = refusal(self.command, hosts, origins, self.server.names)
        if refused is not None:
            self._send(refused)
        return refused is None

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        try:
            answer = self.server.answers.at(path)
        except Exception as error:  # noqa: BLE001 - the next request must be answered
            Event.STATUS_PAGE_FAILED.log(path=path, exc_info=error)
            answer = Answer.line(HTTPStatus.INTERNAL_SERVER_ERROR, type(error).__name__)
        self._send(answer)

    do_HEAD = do_GET  # noqa: N815  # the name that the base class looks for

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002  # the base class's
        """Refuse a request in one line that repeats none of its contents."""
        status = HTTPStatus(code)
        self._send(Answer.line(status, status.phrase))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        headers = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))} | HEADERS
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(READING)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != HTTPMethod.HEAD:
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name in the base class
        """Log no requests: there is one every few seconds."""


def refusal(method: str, hosts: Iterable[str], origins: Iterable[str], names: Container[str]) -> Answer | None:
    """
    Return the answer to a refused request; None if the request is allowed: a read that is addressed to this server.

    A malicious page in a user's browser must not read the status. By DNS rebinding, such a page points its own name at
    this server, and its requests carry that name as `Host`. So the server answers only to names that a stranger cannot
    own. IP addresses qualify, so Kubernetes probes and Prometheus scrapes of pods pass.

    The server has the `names`, in lower case, besides those that always mean it. A client without a `Host` header is
    not a browser. `Origin` is the site of the requesting page.
    """
    if method not in READING:
        return Answer.line(HTTPStatus.METHOD_NOT_ALLOWED, "this server is read-only: use GET or HEAD")
    asked = [host.strip().lower() for host in hosts]
    if not all(_means_us(_name(host), names) for host in asked):
        reason = "unknown host name: use this server's IP address, or add the name to http.allowed.hosts"
        return Answer.line(HTTPStatus.MISDIRECTED_REQUEST, reason)
    sites = [origin.strip().lower().partition("://")[2] for origin in origins]
    if not all(site in asked or _name(site) in names for site in sites):
        return Answer.line(HTTPStatus.FORBIDDEN, "requests from other sites are not allowed")
    return None


def _means_us(name: str, names: Container[str]) -> bool:
    ours = name in names or name == socket.gethostname().lower() or name.endswith(".localhost")
    if ours or _WITHOUT_A_DOT.fullmatch(name):
        return True
    try:
        return bool(ipaddress.ip_address(name.removeprefix("[").removesuffix("]")))
    except ValueError:
        return False


def _name(host: str) -> str:
    return _PORT.sub("", host)
