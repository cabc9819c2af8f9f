"""
Times scrapes of the status page with many partitions, over HTTP, as Prometheus and a browser request them.

With --flood, other processes send requests without pause. The delays of a driver thread and of a probe are shown too.

Usage: python -m tests.bench.scrape [--partitions N] [--times N] [--flood CLIENTS]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import multiprocessing
import statistics
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

from app.status.server import serve
from app.status.snapshot import Snapshot
from tests.bench.report import markdown
from tests.unit.status.snapshots import large


def main() -> None:
    """Print a table with one row per path."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.scrape", description=__doc__.splitlines()[1])
    options.add_argument("--partitions", type=int, default=1_000, help="default: %(default)s")
    options.add_argument("--times", type=int, default=20, help="default: %(default)s")
    options.add_argument("--flood", type=int, default=0, help="how many clients ask all the time; default: %(default)s")
    given = options.parse_args()
    snapshot = replace(large(given.partitions), alive=time.time())

    def latest() -> Snapshot:
        """Return one that changes with each request, because responses are cached; in a flood, only its heartbeat does."""
        now = time.time()
        return replace(snapshot, alive=now) if given.flood else replace(snapshot, at=now)

    with serve("127.0.0.1", 0, latest) as url, flood(f"{url}metrics", given.flood):
        cells = [row(f"{url}{path}", path, given.times) for path in ("metrics", "api/status", "healthz")]
        cells.append(naps())
    print(markdown(["path", "median", "slowest", "size"], cells))


@contextlib.contextmanager
def flood(url: str, clients: int) -> Iterator[None]:
    """Send requests without pause from this many clients: processes, to spare the driver's interpreter lock."""
    flooding = [multiprocessing.get_context("spawn").Process(target=ask_on, args=(url,)) for _ in range(clients)]
    try:
        for each in flooding:
            each.start()
        yield
    finally:
        for each in flooding:
            each.kill()
            each.join()


def ask_on(url: str) -> None:
    """Send requests until the process is killed, ignoring the responses."""
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException), urllib.request.urlopen(url, timeout=10) as answer:
            answer.read()


def naps(times: int = 200, seconds: float = 0.01) -> list[str]:
    """Sleep for 10 ms over and over, like the driver's loop. Return how late each wake-up was."""
    late = []
    for _ in range(times):
        began = time.perf_counter()
        time.sleep(seconds)
        late.append(time.perf_counter() - began - seconds)
    return ["(a thread of the driver)", f"{statistics.median(late):.3f} s", f"{max(late):.3f} s", ""]


def row(url: str, path: str, times: int) -> list[str]:
    """Send this many requests. Return their times and the size of the response."""
    took, size = [], 0
    for _ in range(times):
        began = time.perf_counter()
        with urllib.request.urlopen(url) as answer:
            size = len(answer.read())
        took.append(time.perf_counter() - began)
    return [f"/{path}", f"{statistics.median(took):.3f} s", f"{max(took):.3f} s", f"{size / 1e6:.2f} MB"]


if __name__ == "__main__":
    main()
