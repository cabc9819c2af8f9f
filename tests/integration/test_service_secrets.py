"""Every secret has a unique value, all logging is on, and many things fail: no secret appears anywhere."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from app.embedded.broker import HeldPorts
from tests.independent import Written, connect_again, line, produce, read
from tests.integration.canaries import Canaries, files_in, processes
from tests.integration.guarded import LOGIN, GuardedBroker
from tests.integration.parsers import DEADLY, installed
from tests.integration.service import QUICK_START, Event, WinnowOnSpark, kill_a_worker, settings
from tests.support.configuration import file_of
from tests.support.waiting import PATIENCE, until

RECORDS = 200
NOWHERE = 9  # a port without a listener
KEPT = """
import contextlib, itertools, os

unlink, numbers = os.unlink, itertools.count()


def keep(path, *, dir_fd=None):
    if dir_fd is None:
        with contextlib.suppress(OSError):
            os.link(path, f"{os.environ['TMPDIR']}/kept/{os.getpid()}-{next(numbers)}")
    unlink(path, dir_fd=dir_fd)


os.unlink = keep
"""
"""Python loads this at its start. It keeps a copy of files that a process removes, for the test to inspect."""
PAGES = ("jobs/", "stages/", "environment/", "executors/", "storage/")


@pytest.fixture(scope="module")
def canaries() -> Canaries:
    """Return the secrets of these tests."""
    return Canaries()


@pytest.fixture(scope="module")
def guarded(canaries: Canaries) -> Iterator[GuardedBroker]:
    """Return a broker with two users and their secrets: one for the source, one for the sink."""
    users = " ".join(f'user_{each}="{canaries[each].value}"' for each in ("source", "sink"))
    jaas = {"listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{LOGIN} required {users};"}
    with GuardedBroker(jaas) as broker:
        for role in ("raw", "clean", "dead"):
            broker.create_topic(role)
        yield broker


def login(user: str, **password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "debug": "all",
        **{key.replace("_", "."): value for key, value in password.items()},
    }


def configured(broker: GuardedBroker, canaries: Canaries, folder: Path, group: str, ui: int = 0) -> Event:
    """Return a configuration with every possible secret, most of them in clear text, and all debug logs."""
    scratch = folder / "scratch"
    for each in ("local", "events", "kept"):
        (scratch / each).mkdir(parents=True)
    config = settings(broker.guarded, group=group, sources=["raw"], sink="clean", dead="dead", log_level="debug")
    config["transaction.timeout"] = "30s"  # the broker's limit
    config["kafka"] |= login("source", sasl_password=canaries["source"].value)
    config["kafka"] |= {
        "ssl.key.password": canaries["key"].value,
        "sasl.oauthbearer.client.secret": canaries["oauth"].value,
    }
    config["sink"]["kafka"] = {
        "bootstrap.servers": broker.guarded,
        **login("sink", sasl_password_file=canaries.file("sink", folder)),
    }
    config["spark"] |= {
        "spark.log.level": "INFO",
        "spark.ui.enabled": True,
        "spark.ui.port": ui,
        "spark.local.dir": str(scratch / "local"),
        "spark.eventLog.enabled": True,
        "spark.eventLog.compress": False,
        "spark.eventLog.dir": (scratch / "events").as_uri(),
        "spark.authenticate": True,
        "spark.authenticate.secret": canaries["spark"].value,
        "spark.hadoop.fs.s3a.secret.key": canaries["hadoop"].value,
    }
    config["parser"] = {"name": "deadly"}
    config["offsets"] = {"mirrors": mirrors(canaries, folder)}
    return config


def mirrors(canaries: Canaries, folder: Path) -> list[Event]:
    """Return offset stores that all fail, each with its secrets."""
    redis, webhdfs = (quote(canaries[each].value, safe="") for each in ("redis", "webhdfs"))
    return [
        {"name": "redis", "url": f"redis://:{redis}@127.0.0.1:{NOWHERE}/0"},
        {"name": "mysql", "host": "127.0.0.1", "port": NOWHERE, "user": "u", "password": canaries["mysql"].value}
        | {"database": "d"},
        {"name": "zookeeper", "hosts": f"127.0.0.1:{NOWHERE}", "username": "u"}
        | {"password.file": canaries.file("zookeeper", folder)},
        {"name": "files", "url": "s3://bucket/folder", "endpoint_url": f"http://127.0.0.1:{NOWHERE}"}
        | {"key": canaries["s3 key"].value, "secret": canaries["s3 secret"].value},
        {"name": "files", "url": f"webhdfs://u:{webhdfs}@127.0.0.1:{NOWHERE}/folder"},
        {"name": "files", "url": f"webhdfs://127.0.0.1:{NOWHERE}/folder", "token": canaries["webhdfs token"].value},
    ]


def surroundings(canaries: Canaries, folder: Path) -> dict[str, str]:
    """Return the environment of the service: one more secret, a deadly parser, and files that are kept."""
    scratch = folder / "scratch"
    (folder / "sitecustomize.py").write_text(KEPT)
    return {
        **installed(folder, "deadly", "Deadly", DEADLY),
        "WINNOW_KAFKA__SSL_KEYSTORE_PASSWORD": canaries["environment"].value,
        "TMPDIR": str(scratch),
        "JAVA_TOOL_OPTIONS": f"{QUICK_START['JAVA_TOOL_OPTIONS']} -Djava.io.tmpdir={scratch}",
    }


def spark_pages(port: int) -> Iterator[tuple[str, bytes]]:
    base = f"http://127.0.0.1:{port}/"
    ((application),) = json.loads(asked(f"{base}api/v1/applications"))
    rest = f"api/v1/applications/{application['id']}"
    for path in (*PAGES, f"{rest}/environment", f"{rest}/jobs", f"{rest}/stages", f"{rest}/executors"):
        yield f"Spark's page {path}", asked(base + path)


def asked(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        found: bytes = answer.read()
        return found


def records(bootstrap: str, topic: str) -> Iterator[tuple[str, str]]:
    """Yield each record of a topic with its headers."""
    for record in read(bootstrap, topic):
        yield f"record {topic} {record.offset}", repr(record)


def said(service: WinnowOnSpark) -> str:
    return "\n".join([*map(json.dumps, service.events), *service.noise])


def test_no_secret_is_seen_while_everything_is_said_and_much_fails(
    guarded: GuardedBroker, canaries: Canaries, tmp_path: Path
) -> None:
    """No secret appears with a deadly record, a killed worker, a broker outage, failing mirrors and all debug logs."""
    ports = HeldPorts(1)
    config = configured(guarded, canaries, tmp_path, "everything", ports[0])
    deadly = [line(n, 0) if n != RECORDS // 2 else b"exit" for n in range(RECORDS)]
    produce(guarded.bootstrap, "raw", [Written(each, b"k", 0) for each in [*deadly, b"rejected"]])

    with WinnowOnSpark(config, tmp_path, environment=surroundings(canaries, tmp_path)) as service:
        url = service.wait_for("status_page_up")["url"]
        until(lambda: placed(guarded) > RECORDS, "the deadly record is in the dead letters")
        lost = len(service.logged("task_lost"))
        kill_a_worker(service, random.Random())
        service.wait_for("task_lost", times=lost + 1)
        guarded.kill()
        service.wait_for("kafka_unavailable")
        guarded.start()
        connect_again()
        produce(guarded.bootstrap, "raw", [Written(line(RECORDS + 1, 0), b"k", 0)])
        until(lambda: placed(guarded) > RECORDS + 1, "it goes on")
        seen = canaries.among(
            [
                *processes(service.pid),
                *spark_pages(config["spark"]["spark.ui.port"]),
                *((path, asked(url + path)) for path in ("", "metrics", "api/status")),
            ]
        )
        given = repr(service_environment(service))
    left = dict(files_in(tmp_path / "scratch"))

    assert {} == seen
    assert {} == canaries.among(left.items())
    assert {} == canaries.among([("the log", said(service)), *records(guarded.bootstrap, "clean")])
    assert {} == canaries.among(records(guarded.bootstrap, "dead"))
    # The search works: it finds the secret in the environment it was passed in, and these places were written to.
    assert {"environment"} == canaries.found(given)
    assert any(b"spark.authenticate.secret" in each for each in left.values())
    assert any("/kept/" in name for name in left)
    assert service.logged("mirror_failing")


def service_environment(service: WinnowOnSpark) -> dict[str, str]:
    pairs = Path(f"/proc/{service.pid}/environ").read_text().split("\0")
    return dict(pair.partition("=")[::2] for pair in pairs)


def placed(broker: GuardedBroker) -> int:
    """Return the service's position."""
    return sum(len(read(broker.bootstrap, topic)) for topic in ("clean", "dead"))


def test_without_encryption_the_search_finds_a_secret_on_the_disk(
    guarded: GuardedBroker, canaries: Canaries, tmp_path: Path
) -> None:
    """The control: without encryption Spark writes data for the tasks to a file, where the search finds a secret."""
    config = configured(guarded, canaries, tmp_path, "control")
    config["spark"]["spark.io.encryption.enabled"] = False
    produce(guarded.bootstrap, "raw", [Written(line(0, 0), b"k", 0)])

    with WinnowOnSpark(config, tmp_path, environment=surroundings(canaries, tmp_path)) as service:
        service.wait_for("progress")
    found = canaries.among(files_in(tmp_path / "scratch"))

    assert {"source", "key", "oauth", "environment"} <= set().union(*found.values())


def ended(config: Event, folder: Path, *command: str) -> tuple[int, str]:
    """Run a command to completion. Return its exit code and output."""
    file = file_of(config, folder)
    name, *options = command
    run: list[Any] = [sys.executable, "-m", "app.cli", name, "-c", file, *options]
    done = subprocess.run(
        run, capture_output=True, text=True, env=os.environ | QUICK_START, timeout=PATIENCE, check=False
    )
    return done.returncode, done.stdout + done.stderr


FAILURES: dict[str, tuple[list[str], int, Event]] = {
    "wrong password": (["run"], 3, {"sasl.username": "nobody"}),
    "no certificate": (["run"], 2, {"security.protocol": "SASL_SSL", "ssl.ca.location": "/nowhere"}),
    "a wrong protocol": (["check", "--connect"], 3, {"security.protocol": "SASL_SSL"}),
    "a token server that is away": (
        ["check", "--connect", "--json"],
        3,
        {"sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "winnow"}
        | {"sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{NOWHERE}/token"},
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_no_secret_is_seen_where_kafka_cannot_be_reached(
    guarded: GuardedBroker, canaries: Canaries, tmp_path: Path, failure: str
) -> None:
    """No output repeats a secret, whether the broker refuses, librdkafka refuses, or the connection fails."""
    command, code, wrong = FAILURES[failure]
    config = configured(guarded, canaries, tmp_path, "failing")
    config["parser"] = {"name": "idc-access-log"}
    config["kafka"] |= wrong
    del config["offsets"]

    found, printed = ended(config, tmp_path, *command)

    assert set() == canaries.found(printed)
    assert code == found, printed


def test_no_command_shows_a_secret(guarded: GuardedBroker, canaries: Canaries, tmp_path: Path) -> None:
    """The configuration is shown with its origins and without secrets. A failing preflight shows none either."""
    config = configured(guarded, canaries, tmp_path, "shown")
    config["parser"] = {"name": "idc-access-log"}
    config["dead.letters"]["topic"] = "missing"

    for command in (["config"], ["config", "--json"], ["check", "--json"], ["run"]):
        code, printed = ended(config, tmp_path, *command)
        assert set() == canaries.found(printed)
        assert code == (3 if command == ["run"] else 0), printed
        if command[0] != "config":
            assert "secrets are stored where others may see them: kafka.sasl.password" in printed
            assert "sink.kafka" not in printed.partition("secrets are stored")[2].partition("chmod")[0]
