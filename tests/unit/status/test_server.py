"""The HTTP server over a real socket: its responses, and that Kafka, Spark or a client cannot block it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus

import pytest
from structlog.testing import capture_logs

from app.cures import CHECK, CommandLine, reset
from app.errors import NotUsable
from app.model import Partition, Pause
from app.runtime import Runtime
from app.status.answers import Answer, answer
from app.status.server import MOST_CONNECTIONS, serve
from app.status.snapshot import Phase, Problem, Snapshot
from tests.support.waiting import PATIENCE, until
from tests.unit.status.snapshots import BLOCKED, NOTHING_YET, NOW, SNAPSHOT, large

HERE = "127.0.0.1"


class Page:
    """A server with a snapshot that a test may change."""

    def __init__(self) -> None:
        self.snapshot: Snapshot = SNAPSHOT
        self.now = NOW
        self.url = ""

    @property
    def port(self) -> int:
        return int(self.url.rstrip("/").rpartition(":")[2])

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
        connection = http.client.HTTPConnection(HERE, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """Return a page whose clients may be slow, because the machine is busy."""
    monkeypatch.setattr("app.status.server.CLIENT_SECONDS", PATIENCE)
    monkeypatch.setattr("app.status.server._Handler.timeout", PATIENCE)
    made = Page()
    with serve(HERE, 0, lambda: made.snapshot, Runtime(wall_clock=lambda: made.now)) as made.url:
        yield made


def test_the_status_is_json(page: Page) -> None:
    """It has a version, everything about each partition, the problems with their cures, and its age."""
    status, headers, body = page.ask("/api/status?x=1")
    found = json.loads(body)
    flowing = next(each for each in found["partitions"] if (each["topic"], each["partition"]) == ("raw", 0))

    assert (HTTPStatus.OK, "application/json") == (status, headers["Content-Type"])
    assert (1, "idc", "running", 10.0) == (found["version"], found["group"], found["phase"], found["age"])
    assert ["other", "raw", "raw"] == [each["topic"] for each in found["partitions"]]
    assert ("catching up", 10.0, 100.0) == (
        flowing["condition"],
        flowing["seconds_to_close"],
        flowing["records_per_second"],
    )
    assert ({"empty": 8, "srcip": 2}, 110.0, 3_480.0) == (
        flowing["dead"],
        flowing["lag_seconds"],
        flowing["retention_margin_seconds"],
    )
    assert [("set out.of.range", "raw", 1, 5)] == [
        (each["cure"], each["topic"], each["partition"], each["offset"]) for each in found["problems"]
    ]
    assert [("rebalance", "uneven work")] == [(each["ending"], each["reason"]) for each in found["ended_rounds"]]
    assert {"rebalance": 4, "done": 1} == found["endings"]
    assert {"at": 9_980.0, "records": 50, "out": 45, "dead": 5, "lag": 200} == found["hour"][0]


def test_the_history_is_in_columns(page: Page) -> None:
    """A reason that is newer than a moment had no dead letters then. A limit is known if each partition has one."""
    page.snapshot = replace(SNAPSHOT, about=SNAPSHOT.about._replace(breaker_ratio=0.5))
    found = json.loads(page.ask("/api/history")[2])

    assert {"at": [9_980.0, 9_990.0], "records": [50, 100], "lag": [200, 105]} | {
        "dead": {"empty": [5, 8], "srcip": [0, 2]}
    } == found["hour"]
    assert [9_000.0, 9_990.0] == found["day"]["at"]
    assert {"records_per_second": None, "dead_letters_ratio": 0.5} == found["limits"]
    limited = {partition: replace(each, rate_limit=70) for partition, each in SNAPSHOT.partitions.items()}
    page.snapshot = replace(SNAPSHOT, partitions=limited)
    assert 210 == json.loads(page.ask("/api/history")[2])["limits"]["records_per_second"]
    page.snapshot = NOTHING_YET
    assert {"at": [], "records": [], "lag": [], "dead": {}} == json.loads(page.ask("/api/history")[2])["hour"]


def test_a_cure_has_the_commands_of_this_service(page: Page) -> None:
    """What an operator copies names the configuration and the brokers; the cure itself keeps its placeholders."""
    line = CommandLine("-c /etc/winnow/winnow.yaml", "--bootstrap-server kafka:9092")
    lost = Problem("the offset vanished", reset(Partition("raw", 1), "--to-latest"), 9_000.0, Partition("raw", 1))
    partitions = {BLOCKED.partition: replace(BLOCKED, problem=lost)}
    about = SNAPSHOT.about._replace(command_line=line)
    page.snapshot = replace(SNAPSHOT, partitions=partitions, about=about, warnings=(f"risky: run {CHECK}",))

    found = json.loads(page.ask("/api/status")[2])

    command = "winnow offsets reset -c /etc/winnow/winnow.yaml --topic raw:1 --to-latest"
    advice = [{"text": "stop Winnow, then ", "command": False}, {"text": command, "command": True}]
    assert advice == found["problems"][0]["advice"] == found["partitions"][0]["problem"]["advice"]
    assert lost.cure == found["problems"][0]["cure"]
    check = {"text": "winnow check -c /etc/winnow/winnow.yaml --connect", "command": True}
    assert check == found["findings"][0][1]
    page.snapshot = replace(page.snapshot, paused=Pause(9_000_000, "ops"))
    advice = json.loads(page.ask("/api/status")[2])["service"]["advice"]
    assert {"text": "winnow resume -c /etc/winnow/winnow.yaml", "command": True} == advice[1]


def test_a_scrape_is_what_prometheus_reads(page: Page) -> None:
    """It is the text format, whatever format a newer Prometheus prefers."""
    status, headers, body = page.ask("/metrics", Accept="application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1")

    assert (HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8") == (status, headers["Content-Type"])
    assert 'winnow_records_in_total{group="idc",topic="raw",partition="0"} 100\n' in body


def test_a_scrape_during_an_outage(page: Page) -> None:
    """Kafka is unavailable for ten minutes: metrics keep the last values with their age; not ready, but alive."""
    page.snapshot = replace(
        SNAPSHOT, outage=Problem("Kafka is not responding while asking: x", "", 9_995.0), alive=10_590.0
    )
    page.now = NOW + 590

    assert '\nwinnow_snapshot_age_seconds{group="idc"} 600.0\n' in page.ask("/metrics")[2]
    assert 600.0 == json.loads(page.ask("/api/status")[2])["age"]
    assert (503, "Kafka is not responding while asking: x\n") == page.ask("/readyz")[::2]
    assert (200, "alive\n") == page.ask("/healthz")[::2]


def test_a_service_that_stands_by_is_not_ready_and_says_so(page: Page) -> None:
    """The response says what it is waiting for."""
    page.snapshot = replace(NOTHING_YET, rival=Problem("the service on there works for the same group", "", 9_995.0))

    text = "another service is working for this group; this one stands by until it is gone\n"
    assert (503, text) == page.ask("/readyz")[::2]


@pytest.mark.parametrize(
    ("snapshot", "silent", "alive", "ready"),
    [
        (SNAPSHOT, 5, 200, 200),
        (SNAPSHOT, 54, 200, 200),
        (SNAPSHOT, 60, 503, 503),
        (NOTHING_YET, 60, 200, 503),  # Spark is starting
        (replace(NOTHING_YET, paused=Pause(1, "ops")), 5, 200, 200),  # an operator paused it before it started
        (NOTHING_YET, 301, 503, 503),
        (replace(SNAPSHOT, phase=Phase.LEAVING, cause="SIGTERM"), 5, 200, 200),  # it works until it is taken over
        (replace(SNAPSHOT, phase=Phase.STOPPING, cause="SIGTERM"), 5, 200, 503),
    ],
)
def test_alive_and_ready(page: Page, snapshot: Snapshot, silent: float, alive: int, ready: int) -> None:
    """A hanging loop is not alive after a minute at most; a service is ready when rounds run."""
    page.snapshot, page.now = snapshot, snapshot.alive + silent

    assert (alive, ready) == (page.ask("/healthz")[0], page.ask("/readyz")[0])


def test_the_page_loads_nothing(page: Page) -> None:
    """The browser may load nothing from elsewhere, and talk only to this server."""
    status, headers, body = page.ask("/")

    assert (HTTPStatus.OK, "text/html; charset=utf-8") == (status, headers["Content-Type"])
    assert headers["Content-Security-Policy"].startswith("default-src 'none';")
    assert body.lower().startswith("<!doctype html>")


def test_what_is_not_here(page: Page) -> None:
    """An unknown path lists the known ones; nothing can be changed; HEAD has no body."""
    status, _, body = page.ask("/favicon.ico")
    assert (404, "not found; try / /api/status /api/history /metrics /healthz /readyz\n") == (status, body)
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "FLY"):
        status, headers, body = page.ask("/api/status", method)
        assert (405, "GET, HEAD", "this server is read-only: use GET or HEAD\n") == (status, headers["Allow"], body)

    status, headers, body = page.ask("/metrics", "HEAD")
    assert (200, "") == (status, body)
    assert int(headers["Content-Length"]) > 1_000


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/", "GET", {}, 200),
        ("/metrics", "HEAD", {}, 200),
        ("/nothing", "GET", {}, 404),
        ("/", "POST", {}, 405),
        ("/", "GET", {"Host": "evil.example"}, 421),
        ("/", "GET", {"Origin": "http://evil.example"}, 403),
        ("/", "GET", {"X": "x" * 70_000}, 431),
        ("/", "GET", {f"X-{number}": "x" * 2_000 for number in range(50)}, 431),
        ("/" + "x" * 70_000, "GET", {}, 414),
    ],
)
def test_every_answer_protects_itself(page: Page, path: str, method: str, headers: dict[str, str], status: int) -> None:
    """Browsers must not store, frame, sniff or share it with other sites; the same holds for refusals."""
    found, given, body = page.ask(path, method, **headers)

    assert status == found
    assert ("nosniff", "DENY", "no-referrer", "no-store", "same-origin") == tuple(
        given[name]
        for name in (
            "X-Content-Type-Options",
            "X-Frame-Options",
            "Referrer-Policy",
            "Cache-Control",
            "Cross-Origin-Resource-Policy",
        )
    )
    assert "frame-ancestors 'none'" in given["Content-Security-Policy"]
    assert "unsafe" not in given["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in given
    if status >= 400:
        assert 1 == len(body.splitlines())
        assert "evil" not in body


def test_a_name_that_is_allowed(page: Page) -> None:
    """An ingress's name is accepted if the configuration has it."""
    with serve(HERE, 0, lambda: SNAPSHOT, allowed_hosts=["winnow.example.org"]) as page.url:
        assert 200 == page.ask("/", Host="Winnow.example.org")[0]
        assert 421 == page.ask("/", Host="other.example.org")[0]


def test_slow_clients_hold_nobody_up(page: Page) -> None:
    """Far more slow connections than there is room for do not affect a probe."""
    threads = threading.active_count()
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection((HERE, page.port))) for _ in range(3 * MOST_CONNECTIONS)]
        for byte in b"GET /metr":
            for each in slow:
                with contextlib.suppress(OSError):  # it made room for another one
                    each.sendall(bytes([byte]))
            assert 200 == page.ask("/healthz")[0]
            until(lambda: threading.active_count() <= threads + MOST_CONNECTIONS + 1, "threads to end")

    assert 200 == page.ask("/healthz")[0]


def test_a_client_that_is_too_slow_is_sent_away(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time counts from the first byte, however many follow."""
    monkeypatch.setattr("app.status.server.CLIENT_SECONDS", 0.2)
    with (
        serve(HERE, 0, lambda: SNAPSHOT) as page.url,
        socket.create_connection((HERE, page.port), timeout=0.01) as slow,
    ):

        def is_sent_away() -> bool:
            try:
                slow.sendall(b"X")
                return not slow.recv(1)
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        until(is_sent_away)


def test_clients_that_go_away_hold_nobody_up(page: Page) -> None:
    """Each one disconnects in the middle of its response, and frees its place."""
    for _ in range(2 * MOST_CONNECTIONS):
        with socket.create_connection((HERE, page.port)) as hasty:
            hasty.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")

    assert 200 == page.ask("/healthz")[0]


def test_clients_that_take_no_answer_hold_nobody_up(page: Page) -> None:
    """They request a megabyte and read nothing of it."""
    page.snapshot = large(2_000)
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS + 8):
            deaf = stack.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            deaf.connect((HERE, page.port))
            deaf.sendall(b"GET /api/status HTTP/1.0\r\n\r\n")

        assert 200 == page.ask("/healthz")[0]


@pytest.mark.parametrize(
    ("start", "more", "answered"),
    [
        (b"GET /", b"x" * 65_536, b"414"),
        (b"GET / HTTP/1.1\r\n", b"X: " + b"x" * 1_000 + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n", b"X: x\r\n", b"431"),
        (b"GET /healthz HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n", b"x" * 65_536, b"200"),
        (b"POST /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65_536, b"405"),
    ],
)
def test_a_huge_request_is_not_taken_in(page: Page, start: bytes, more: bytes, answered: bytes) -> None:
    """Endless lines, headers or bodies: the server reads a limited amount, refuses, and serves the next request."""
    with socket.create_connection((HERE, page.port), timeout=PATIENCE) as client:
        client.sendall(start)
        sent = 0
        with contextlib.suppress(ConnectionError):  # it has turned away
            while sent < 50 << 20:
                client.sendall(more)
                sent += len(more)
        assert sent < 50 << 20
        with contextlib.suppress(ConnectionError):  # the answer was lost with what it refused
            assert answered in client.recv(100)

    assert 200 == page.ask("/healthz")[0]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths whose answers were written, not shared."""
    found: list[str] = []

    def write(path: str, snapshot: Snapshot, now: float) -> Answer:
        found.append(path)
        return answer(path, snapshot, now)

    monkeypatch.setattr("app.status.answers.answer", write)
    return found


def test_many_clients_at_once_cost_one_answer(page: Page, written: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred concurrent scrapes each get the full response, which is written only once."""
    monkeypatch.setattr("app.status.server.MOST_CONNECTIONS", 200)  # a slow thread of ours makes no room for others
    page.snapshot = large(1_000)
    runtime = Runtime(wall_clock=lambda: NOW)
    with serve(HERE, 0, lambda: page.snapshot, runtime) as page.url, ThreadPoolExecutor(32) as clients:
        sizes = {len(each[2]) for each in clients.map(lambda _: page.ask("/metrics"), range(200))}

    assert (1, 1) == (len(sizes), len(written))


def test_a_heartbeat_costs_no_answer(page: Page, written: list[str]) -> None:
    """The driver gives ten a second, so a flood would cost ten answers a second instead of two. A change costs one."""
    for seconds in range(3):
        page.snapshot = replace(SNAPSHOT, alive=NOW + seconds)
        page.ask("/metrics")
    page.snapshot = replace(page.snapshot, at=NOW)
    page.ask("/metrics")

    assert ["/metrics", "/metrics"] == written


def test_a_fault_of_the_page_is_an_answer(page: Page) -> None:
    """It is logged, the client gets an error, and the next request is served."""
    good, page.snapshot = page.snapshot, None  # type: ignore[assignment]  # the fault
    with capture_logs() as logs:
        assert 500 == page.ask("/api/status")[0]
    page.snapshot = good

    assert ["status_page_failed"] == [each["event"] for each in logs]
    assert 200 == page.ask("/api/status")[0]


def test_a_taken_port_is_a_clear_error(page: Page) -> None:
    """It names the port and the cure."""
    with pytest.raises(NotUsable, match=rf"{HERE}, port {page.port} .*set http.port to a free port") as caught:
        serve(HERE, page.port, lambda: SNAPSHOT).__enter__()

    assert 3 == caught.value.exit_code


def test_an_address_that_is_not_ours_is_a_clear_error() -> None:
    """It names the address."""
    with pytest.raises(NotUsable, match=r"the status page cannot listen on 192\.0\.2\.1, port 0"):
        serve("192.0.2.1", 0, lambda: SNAPSHOT).__enter__()


def test_a_free_port_is_logged() -> None:
    """The log has the URL; afterwards the port is closed."""
    with capture_logs() as logs, serve(HERE, 0, lambda: SNAPSHOT) as url:
        port = int(url.rstrip("/").rpartition(":")[2])

    assert [("status_page_up", f"http://127.0.0.1:{port}/")] == [(each["event"], each["url"]) for each in logs]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HERE, port))


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_an_address_of_ipv6() -> None:
    """Its URL has brackets."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no ::1")
    with serve("::1", 0, lambda: SNAPSHOT) as url:
        assert url.startswith("http://[::1]:")
