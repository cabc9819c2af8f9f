"""
The history of a run: a gzipped file of JSON lines, written during the run and checked afterwards, any number of times.

Each line is an event, in the order of observation: `at` (seconds since the start), `kind`, and

    setup      seed, arm, partitions: the plan of the run; may_double if the service is to deliver at least once
    write      stream, first, count, bad (sequence numbers), outcome (`ok`, `aborted`, `unknown`); perhaps either: the
               numbers of lines that may be in the sink or among the dead letters
    read       reader, role (`sink`, `dead`), partition, runs [offset, stream, first, count, transaction], altered,
               hashes: of the records at some offsets
    closed     reader, transaction, count: the number of records, from the last record of a transaction
    marks      rows [role, partition, last stable offset, high watermark]
    committed  offsets: source partition -> committed offset of the group
    fault      name, target, state (of the system, before the fault), began, told (a regular expression that the log must
               match before the fault is repaired)
    healed     name, target of the repaired fault
    harmed     since, partitions: those that a fault has hit from then until now; the others had to go on
    seen       anomaly, what: an anomaly that the nemesis itself has seen
    missed     name of a fault that has met nobody, why
    held       api, transactional_id, seconds: a request that was held, and for how long
    reset      partition: of the source, whose committed offset an operator has set
    drained    lag: what the service had not done at the end, none; `not drained` if it stood still before
    kept       partition, offset, runs [stream, first, count]: what the source holds at the end
    planted    stream, number of a line that the harness itself added to the sink
    audited    code, counts, words: the exit code, the verdict and the stderr of `winnow audit`
    taken over zombie, successor: prefixes of the transactions of a stopped worker, and of the worker that took over
    sample     process (`driver`, `JVM`, `worker`), pid, figures: what it takes, by measure
    said       event and fields: what the service logged, from `warning` up, and its last words
    finished   rows as in marks, after the service has stopped

A stream is the numbered sequence of lines that one writer writes to one source partition. A run is a range of
consecutive offsets with consecutive sequence numbers.
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
FLUSH_SECONDS = 2.0
"""How far the file may be behind the run, which somebody may watch or end."""


class Recorder:
    """Writes a history; any thread may call `record`. A context manager."""

    def __init__(self, path: Path) -> None:
        """Open the file and start the clock."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = gzip.open(path, "wt", compresslevel=4)  # noqa: SIM115  # closed by __exit__
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._flushed_at = 0.0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file, so that the history can be checked even if the run failed."""
        with self._lock:
            self._file.close()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self._began, 3)

    def record(self, kind: str, **fields: object) -> None:
        """Add an event."""
        with self._lock:
            if self._file.closed:
                return
            self._file.write(json.dumps({"at": self.now, "kind": kind, **fields}, separators=(",", ":")) + "\n")
            if self.now - self._flushed_at > FLUSH_SECONDS:
                self._file.flush()
                self._flushed_at = self.now


def events(path: Path) -> Iterator[Event]:
    """Yield the events of a history, in order."""
    with gzip.open(path, "rt") as file:
        for line in file:
            yield json.loads(line)
