"""
Kills at random moments, with each offset store as the truth: `python -m tests.chaos.stores [NAME ...]`.

Killed are Python workers, the driver, and the store's server, each by SIGKILL; the server is also frozen by SIGSTOP. With the store in Kafka the service
delivers exactly once, so every anomaly counts. With the others it delivers at least once: a line may come twice, but
none may be lost. Exits with 1 if one was.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from app.errors import NotUsable, Unreachable
from app.model import Partition, Plugin
from app.offsets.contract import StoreContext
from app.offsets.registry import open_store
from tests.chaos.checker import Finding, judge
from tests.chaos.cluster import SMALL, System, until
from tests.chaos.grouped import History
from tests.chaos.harm.base import Harm, inflicted
from tests.chaos.history import Recorder, events
from tests.chaos.load import Load, fresh_name
from tests.chaos.nemesis import Nemesis, schedule
from tests.chaos.readers import Reader
from tests.chaos.run import BRIEF, STEADY_SECONDS, conclude, stop
from tests.chaos.work import AT_LEAST_ONCE, HONEST
from tests.independent import ends
from tests.servers.hbase import HBase, HBaseThrift
from tests.servers.mariadb import MariaDB
from tests.servers.redis import Redis
from tests.servers.server import Server
from tests.servers.zookeeper import ZooKeeper

PROCESSES = ["worker killed"] * 3 + ["driver killed"]
"""One turn, to which those of the store's server are added, where it has one of its own."""
AWAY: Mapping[str, tuple[Callable[[Server], None], Callable[[Server], None], tuple[float, float]]] = {
    "store killed": (Server.kill, Server.start, (0.1, 3)),
    "store frozen": (Server.freeze, Server.thaw, (2, 30)),
}
"""How to take the store's server away, how to bring it back, and after how many seconds, at least and at most."""
PATIENCE = 300.0
"""How long the first lines may take, and the last; on a busy machine a restarted driver alone takes a minute."""
HARMFUL = frozenset({"lost", "phantom", "misplaced", "aborted read", "disagree", "harmed nobody", "unfinished"})
"""What may not happen at least once either."""


class Truth(NamedTuple):
    """A store on a real server, and how it is configured."""

    server: Server | None
    options: dict[str, Any]


@contextmanager
def truth(name: str, folder: Path) -> Iterator[Truth]:
    """Start the server of a store."""
    match name:
        case "redis":
            with Redis() as redis:
                yield Truth(redis, {"url": redis.url})
        case "zookeeper":
            with ZooKeeper() as zookeeper:
                yield Truth(zookeeper, {"hosts": zookeeper.address})
        case "mysql":
            with MariaDB() as mariadb:
                access = {key: getattr(mariadb, key) for key in ("user", "password", "database")}
                yield Truth(mariadb, {"host": "127.0.0.1", "port": mariadb.port, **access})
        case "hbase":
            with HBase() as hbase, HBaseThrift(hbase) as thrift:
                yield Truth(thrift, {"host": "127.0.0.1", "port": thrift.port})
        case "files":
            (folder / "offsets").mkdir()
            yield Truth(None, {"url": f"file://{folder / 'offsets'}"})
        case _:
            yield Truth(None, {})


def run(name: str, seed: int, seconds: float, folder: Path) -> Path:
    """Run the service with that store under kills, and return the path of the history."""
    folder.mkdir(parents=True, exist_ok=True)
    arm = HONEST if name == "kafka" else AT_LEAST_ONCE
    with (
        truth(name, folder) as store,
        configured(name, store.options),
        Recorder(folder / "history.jsonl.gz") as recorder,
        System(SMALL, folder, arm, fresh_name(), recorder=recorder) as system,
    ):
        recorder.record("setup", seed=seed, arm=arm, partitions=SMALL.partitions, brokers=1, workers=0, store=name)
        rng, where = random.Random(seed), system.broker.bootstrap
        load = Load(where, system.source, partitions=SMALL.partitions, per_second=500, recorder=recorder, rng=rng)
        with Reader("first", where, system.roles, recorder) as reader, load:
            assert until(lambda: bool(reader.lines), PATIENCE), f"nothing is written: {system.driver.noise[-10:]}"
            _kill(system, load, store.server, rng, time.monotonic() + seconds)
            time.sleep(STEADY_SECONDS)
            load.stop()
            drained = until(lambda: _lag(system, Plugin(name, store.options)) == 0, PATIENCE)
            recorder.record("drained" if drained else "not drained")
            try:
                stop(system, recorder)
            except (
                subprocess.TimeoutExpired
            ):  # the machine is too busy for an orderly stop; leaving the system kills it
                recorder.record("not stopped")
        conclude(system, recorder)
    return recorder.path


def _kill(system: System, load: Load, server: Server | None, rng: random.Random, deadline: float) -> None:
    nemesis = Nemesis(system, load, rng)
    for name in schedule(PROCESSES + (list(AWAY) if server else []), rng):
        if time.monotonic() > deadline:
            return
        if server is not None and name in AWAY:
            with inflicted(name, _away(server, name), system, load, rng):
                pass
        else:
            nemesis.strike(name)
        time.sleep(rng.uniform(*BRIEF))


def _away(server: Server, name: str) -> Harm:
    take_away, bring_back, seconds = AWAY[name]

    @contextmanager
    def away(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        take_away(server)
        yield server.title
        time.sleep(rng.uniform(*seconds))
        bring_back(server)

    return away


def _lag(system: System, store: Plugin) -> int:
    """Return how many source offsets the store does not have yet; -1 where it does not answer."""
    opened = open_store(store, StoreContext(system.name, {"bootstrap.servers": system.broker.bootstrap}))
    wanted = {Partition(*place): end for place, end in ends(system.broker.bootstrap, system.source).items()}
    with contextlib.closing(opened):
        try:
            found = opened.load(wanted, stable=True)
        except (Unreachable, NotUsable):
            return -1
    return sum(end - (found[each].offset if each in found else 0) for each, end in wanted.items())


@contextmanager
def configured(name: str, options: dict[str, Any]) -> Iterator[None]:
    """Let the service find its store in the environment."""
    os.environ["WINNOW_OFFSETS__STORE"] = json.dumps({"name": name, **options})
    try:
        yield
    finally:
        del os.environ["WINNOW_OFFSETS__STORE"]


def _harm(name: str, findings: list[Finding]) -> list[Finding]:
    return [each for each in findings if each.times and (name == "kafka" or each.name in HARMFUL)]


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seconds", default=60.0, show_default=True, help="How long processes are killed, for each store.")
@click.option("--seed", default=1, show_default=True, help="Decides the order of the kills, their targets and pauses.")
def main(names: tuple[str, ...], seconds: float, seed: int) -> None:
    """Kill at random moments with each of these stores as the truth; by default with all that have a server, and kafka."""
    failed = False
    for name in names or ("kafka", "zookeeper", "mysql", "hbase", "redis", "files"):
        path = run(name, seed, seconds, Path(tempfile.mkdtemp(prefix=f"winnow-chaos-{name}-")))
        recorded = list(events(path))
        history = History.of(recorded)
        findings = judge(history)
        drained = any(event["kind"] == "drained" for event in recorded)
        kills = ", ".join(f"{n} x {kill}" for kill, n in Counter(each.name for each in history.faults).items())
        said = ", ".join(f"{each.times} {each.name}" for each in findings if each.times) or "no anomaly"
        lines = sum(count for _, count in history.writes)
        click.echo(f"{name}: {lines} lines; {kills}; {said}{'' if drained else '; NOT DRAINED'} ({path})")
        failed = failed or bool(_harm(name, findings)) or not drained
    sys.exit(failed)


if __name__ == "__main__":
    main()
