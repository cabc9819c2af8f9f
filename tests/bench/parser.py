"""
Measures the parser's time per line on one thread: `python tests/bench/parser.py [FILE] [LINES]`.

FILE contains access log lines; without it the lines are generated. Prints the best of several runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter

import pyarrow as pa

from parsers.contract import Parser
from parsers.fields.located import cut, pattern_of
from parsers.flume.envelope import wrap
from parsers.idc_access_log import FIELDS, IdcAccessLog

SECONDS = 1.0


def main() -> None:
    """Measure and print every case."""
    path, count = sys.argv[1] if len(sys.argv) > 1 else "", int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    lines = list(islice(cycle(Path(path).read_bytes().splitlines() if path else generated_lines()), count))
    events = [event(line) for line in lines]
    print(f"{count} lines of {sum(map(len, lines)) / count:.0f} bytes, best of the runs in {SECONDS:g} s")
    for name, engine, format_, values in cases(lines, events):
        start = perf_counter()
        parser = wrap(IdcAccessLog(engine=engine), format_, engine=engine)
        built = perf_counter() - start
        print(f"{name:<46} {best(parser, pa.array(values, pa.binary())):8.3f} us per line   built in {built:5.2f} s")
    values = IdcAccessLog().parse(pa.array(lines, pa.binary())).values
    for name in ("houseid", "srcip", "url"):
        pattern = pattern_of(IdcAccessLog(), name)
        took = min(timings(partial(cut, values, pattern)))
        print(f"{f'its key, {name}':<46} {took / len(values) * 1e6:8.3f} us per line")


def cases(lines: list[bytes], events: list[bytes]) -> Iterator[tuple[str, str, str, list[bytes]]]:
    """Yield the cases: name, engine, format, values."""
    yield "compiled", "compiled", "raw", lines
    yield "compiled, GBK urls", "compiled", "raw", [line.replace(b"http", b"\xb9\xe3\xd6\xdd|") for line in lines]
    yield (
        "compiled, every line rejected (gathertime)",
        "compiled",
        "raw",
        [line.replace(b">>>2017", b">>>x017") for line in lines],
    )
    yield "compiled, every line rejected (no_marker)", "compiled", "raw", [line[1:] for line in lines]
    for engine in ("compiled", "plain"):
        yield f"{engine}, auto, raw lines", engine, "auto", lines
        yield f"{engine}, auto, events", engine, "auto", events
        yield f"{engine}, flume-avro", engine, "flume-avro", events
    yield "plain", "plain", "raw", lines


def best(parser: Parser, batch: pa.BinaryArray) -> float:
    """Return the microseconds per line of the best run."""
    return min(timings(lambda: parser.parse(batch))) / len(batch) * 1e6


def timings(work: Callable[[], object]) -> Iterator[float]:
    """Repeat the work until the time is up, at least twice. Yield the seconds of each run."""
    until = perf_counter() + SECONDS
    for run in cycle((1, 2)):
        start = perf_counter()
        work()
        yield perf_counter() - start
        if run == 2 and perf_counter() > until:
            return


def generated_lines() -> list[bytes]:
    """Return lines like the recorded ones."""
    known = {
        "commandid": "3111",
        "houseid": "238",
        "gathertime": "20171112132902",
        "srcip": "58.223.1.112",
        "destip": "202.102.92.18",
        "srcport": "59948",
        "destport": "80",
        "domainname": "www.example.com",
        "url": "http://www.example.com/Social.aspx",
        "logid": "2556928065",
    }
    fields = [known.get(name, "") for name in FIELDS]
    return [("<<<!>>>" + "<<<!>>>,<<<!>>>".join(fields) + "<<<!>>>").encode()]


def event(line: bytes) -> bytes:
    """Return a line in an envelope, as Flume's netcat source writes it."""
    headers = {"host": "127.0.0.1", "key": "k1", "timestamp": "1795251648256"}
    texts = [part.encode() for pair in headers.items() for part in pair]
    return number(len(headers)) + b"".join(number(len(t)) + t for t in texts) + b"\x00" + number(len(line)) + line


def number(value: int) -> bytes:
    """Return a non-negative number in Avro's encoding."""
    value, out = 2 * value, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


if __name__ == "__main__":
    main()
