"""docker/main.py: restarts itself after failures and removes the finished executors of earlier drivers."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from types import ModuleType

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.deploy.conftest import ROOT, script
from tests.support.waiting import PATIENCE

MAIN = ROOT / "docker/main.py"
# The program with a fake command, started as a cluster's driver. The command exits with codes from a list, one per
# start.
PROGRAM = """
import os, signal, sys
from ipaddress import ip_address
from pathlib import Path
import {main} as program
from app.driver.stop import Stop
codes = Path({codes!r})
def command():
    first, *rest = codes.read_text().split()
    codes.write_text(" ".join(rest))
    group, password = os.environ.pop("WINNOW_GROUP__ID"), "hunter2"
    print("started", os.getpid(), os.environ.get(program.ATTEMPT), group, *sys.argv[1:], flush=True)
    if first == "signalled":
        Stop().on_signals()
        os.kill(os.getpid(), signal.SIGTERM)
        sys.exit(3)
    sys.exit(int(first)) if first.isdecimal() else int(first)
program.main, program.FIRST_SECONDS, program.LONGEST_SECONDS = command, {first}, {longest}
program.reap()
program.run()
"""


def started(folder: Path, codes: str, *, first: float = 0.05, longest: float = 0.1) -> subprocess.Popen[str]:
    """Start the program with a command that exits with these codes in turn."""
    (folder / "codes").write_text(codes)
    script = folder / "script.py"
    script.write_text(PROGRAM.format(main="main", codes=str(folder / "codes"), first=first, longest=longest))
    environment = os.environ | {"PYTHONPATH": f"{MAIN.parent}:{ROOT}", "PYTHONUNBUFFERED": "1", "WINNOW_GROUP__ID": "g"}
    return subprocess.Popen(
        [sys.executable, script, "run", "-c", "file"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def runs(output: str) -> list[list[str]]:
    return [line.split()[1:] for line in output.splitlines() if line.startswith("started ")]


def test_a_driver_that_fails_starts_itself_again(tmp_path: Path) -> None:
    """
    After exit codes 1 and 3 and an unknown error, the driver restarts in the same process. The log names the growing
    delay.

    The command removes its configuration from the environment, and each restart puts it back. From the first restart on
    it stands by, because another driver may have replaced it.
    """
    with started(tmp_path, "3 1 unknown 0") as process:
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    first, *others = runs(output)
    assert first == [str(process.pid), "None", "g", "run", "-c", "file"]
    assert others == [[str(process.pid), attempt, *first[2:], "--stand-by"] for attempt in ("1", "2", "3")]
    assert output.count("driver_restarting") == 3
    assert '"at_most_seconds": 0.1' in output
    assert "invalid literal for int() with base 10: 'unknown'" in output


def test_a_crash_shows_no_variables(tmp_path: Path) -> None:
    """They may hold secrets. structlog shows them in a traceback if nothing has configured it yet."""
    with started(tmp_path, "unknown 0") as process:
        output, _ = process.communicate(timeout=PATIENCE)

    (crash,) = [json.loads(each) for each in output.splitlines() if "driver_crashed" in each]
    assert "invalid literal" in crash["exception"]
    assert "hunter2" not in output


@pytest.mark.parametrize("code", [0, 2])
def test_other_ends_are_the_operators_matter(tmp_path: Path, code: int) -> None:
    """Success, or a failure that waiting cannot fix, ends the driver at once with that exit code."""
    with started(tmp_path, f"{code} 3") as process:
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert len(runs(output)) == 1


def test_a_signal_ends_the_wait(tmp_path: Path) -> None:
    """A pod that is deleted while its driver waits to restart exits cleanly and soon."""
    with started(tmp_path, "3 0", first=3600, longest=3600) as process:
        assert process.stdout
        while "driver_restarting" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 0


def test_a_signal_before_the_failure_ends_the_driver(tmp_path: Path) -> None:
    """Its pod is deleted, and it fails while it leaves: another start would work until it is killed."""
    with started(tmp_path, "signalled 0") as process:
        output, _ = process.communicate(timeout=PATIENCE)

    assert (0, 1) == (process.returncode, len(runs(output)))


def test_the_wait_is_bounded(program: ModuleType) -> None:
    """The delay never exceeds 60 s. The operator's would have no bound."""
    assert [program.pause(attempt) for attempt in range(1, 9)] == [5, 10, 20, 40, 60, 60, 60, 60]
    assert program.pause(10_000) == 60


@pytest.fixture
def program() -> ModuleType:
    return script("main")


class Cluster(BaseHTTPRequestHandler):
    """An API server with finished pods, which it forgets when they are deleted."""

    pods: list[str]
    asked: list[tuple[str, str, str]]
    status = 200

    def do_GET(self) -> None:
        self.answer({"items": [{"metadata": {"name": name}} for name in self.pods]})

    def do_DELETE(self) -> None:
        self.pods.remove(self.path.rsplit("/", 1)[1])
        self.answer({})

    def answer(self, document: object) -> None:
        self.asked.append((self.command, self.path, self.headers["Authorization"]))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


def certificate(folder: Path) -> ssl.SSLContext:
    """Make a self-signed certificate for 127.0.0.1, and return the server's TLS settings."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem))
    (folder / "key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "key")
    return context


@pytest.fixture
def cluster(tmp_path: Path, program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Cluster]]:
    """Serve an API with pods, and mount an account for it."""

    class Here(Cluster):
        pods, asked = ["winnow-1-exec-1", "winnow-1-exec-2"], []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Here)
    server.socket = certificate(tmp_path).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    (tmp_path / "token").write_text("the-token")
    (tmp_path / "namespace").write_text("logs")
    monkeypatch.setattr(program, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_address[1]))
    yield Here
    server.shutdown()
    server.server_close()
    thread.join()


def test_finished_executors_of_earlier_drivers_are_removed(program: ModuleType, cluster: type[Cluster]) -> None:
    """Each finished executor of this release is deleted by name, with the driver's account; all others stay."""
    program.remove_finished_executors("app.kubernetes.io/instance=winnow,app.kubernetes.io/component=executor")
    assert cluster.pods == []
    (method, listed, authorization), *deleted = cluster.asked
    assert (method, authorization) == ("GET", "Bearer the-token")
    assert listed.startswith("/api/v1/namespaces/logs/pods?labelSelector=app.kubernetes.io%2Finstance%3Dwinnow%2C")
    assert "fieldSelector=status.phase%21%3DPending%2Cstatus.phase%21%3DRunning" in listed
    assert [path for _, path, _ in deleted] == [f"/api/v1/namespaces/logs/pods/winnow-1-exec-{n}" for n in (1, 2)]


def test_a_driver_works_where_it_may_not_remove_them(
    program: ModuleType, cluster: type[Cluster], capsys: pytest.CaptureFixture[str]
) -> None:
    """If the deletion is refused, the driver logs one warning with the reason and goes on."""
    cluster.status = 403
    program.remove_finished_executors("a=b")
    assert "403 Forbidden" in capsys.readouterr().out
    assert cluster.pods
