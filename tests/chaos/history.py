"""
What happened in a run, in the order in which it was seen: written while it happens, judged then, judged again later.

A history is a gzipped file of JSON lines. Each line is an event: `at` (seconds since the start), `kind`, and

    setup      seed, arm, partitions: what was run
    write      stream, first, count, bad (sequence numbers), outcome (`ok`, `aborted`, `unknown`)
    read       reader, role (`sink`, `dead`), partition, runs [offset, stream, first, count, transaction], altered
    closed     reader, transaction, count: what a transaction says of itself in its last record
    marks      rows [role, partition, last stable offset, high watermark]
    committed  offsets: source partition -> offset of the group
    fault      name, target, state; for a while, until
    healed     name, target
    taken over zombie, successor: whose transactions begin with `zombie` was stopped, and who works in its place
    said       event and fields: what the service logged, from `warning` up
    finished   marks as above, when the service had stopped

A stream is a numbered sequence of lines of one writer to one source partition. A run is a stretch of neighbouring
offsets with neighbouring sequence numbers.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Event = dict[str, Any]


class Recorder:
    """Writes a history; any thread may record. A context manager."""

    def __init__(self, path: Path) -> None:
        """Open the file and start the clock."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = gzip.open(path, "wt", compresslevel=4)  # noqa: SIM115  # closed by __exit__
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file: what was recorded so far can be judged, whatever happened."""
        with self._lock:
            self._file.close()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self._began, 3)

    def record(self, kind: str, **told: object) -> None:
        """Add an event."""
        with self._lock:
            if not self._file.closed:
                self._file.write(json.dumps({"at": self.now, "kind": kind, **told}, separators=(",", ":")) + "\n")


def events(path: Path) -> Iterator[Event]:
    """Read a history, in its order."""
    with gzip.open(path, "rt") as file:
        for line in file:
            yield json.loads(line)
