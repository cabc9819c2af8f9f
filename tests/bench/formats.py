"""
Measures the CPU cost of each format and of filters for one task, without Spark: consume, parse, produce and commit, exactly once.

Usage: python -m tests.bench.formats [--records N] [--runs N]
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice

from confluent_kafka import Producer

from app.demo.feed import PRODUCER
from app.embedded.broker import Broker
from app.model import FilterRule, Plugin
from tests.bench.lineage import measure
from tests.bench.parser import generated_lines
from tests.bench.report import markdown, spread

REQUESTS = 1_000
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"
COLUMNS = {
    "output": "{client}|{time}|{status}|{url}|{agent}",
    "checks": {"client": "ip", "status": "integer"},
    "escape": ["url", "agent"],
}
REGEX = {
    "log.format": "combined",
    "output": "{remote_addr}|{time_local}|{status}|{url}|{user_agent}",
    "checks": {"remote_addr": "ip", "status": "integer"},
    "escape": ["url", "user_agent"],
}
NAMES = ["client", "time", "url", "status", "bytes", "referer", "agent"]
POINTERS = {
    "client": "/client",
    "time": "/time",
    "status": "/http/status",
    "url": "/http/request/url",
    "agent": "/http/request/agent",
}
JSON_OUTPUT = {**COLUMNS, "output": ["client", "time", "status", "url", "agent"], "output.format": "json"}


def requests() -> Iterator[tuple[str, str, str, int, int, str, str]]:
    """Yield requests as the fields in `NAMES`."""
    for n in range(REQUESTS):
        time = f"24/Nov/2026:06:{n // 60:02}:{n % 60:02} +0000"
        url, referer = f"/shop/item/{n * 7919}?page={n % 9}", f"https://www.example.org/{n}"
        yield f"10.{n % 251}.{n % 83}.7", time, url, 200, 100 + n * 37, referer, AGENT if n % 3 else "curl/8.5.0"


def combined() -> list[bytes]:
    return [
        f'{client} - - [{time}] "GET {url} HTTP/1.1" {status} {size} "{referer}" "{agent}"'.encode()
        for client, time, url, status, size, referer, agent in requests()
    ]


def objects() -> list[bytes]:
    return [
        json.dumps(
            {
                "time": time,
                "client": client,
                "http": {
                    "request": {"method": "GET", "url": url, "agent": agent, "referer": referer},
                    "status": status,
                },
                "bytes": size,
            }
        ).encode()
        for client, time, url, status, size, referer, agent in requests()
    ]


def rows() -> list[bytes]:
    return [",".join([*map(str, each[:5]), f'"{each[5]}"', f'"{each[6]}"']).encode() for each in requests()]


def pairs() -> list[bytes]:
    return [
        " ".join(f'{name}="{value}"' for name, value in zip(NAMES, each, strict=True)).encode() for each in requests()
    ]


IDC = Plugin("idc-access-log")
NO_LINE = {"matches": "^ftp://health/"}
FILTERS = {
    "one filter of the last field": (FilterRule("url", "url", NO_LINE),),
    "one filter of the first field": (FilterRule("house", "houseid", {"one-of": ["none"]}),),
    "a filter that drops every line": (FilterRule("url", "url", NO_LINE, keeps=True),),
}
CASES: Mapping[str, tuple[Callable[[], list[bytes]], Plugin]] = {
    "idc-access-log": (generated_lines, IDC),
    **{f"idc-access-log, {name}": (generated_lines, IDC) for name in FILTERS},
    "regex, combined": (combined, Plugin("regex", REGEX)),
    "json": (objects, Plugin("json", {**COLUMNS, "fields": POINTERS})),
    "json to json": (objects, Plugin("json", {**JSON_OUTPUT, "fields": POINTERS})),
    "csv": (rows, Plugin("csv", {**COLUMNS, "fields": NAMES})),
    "logfmt": (pairs, Plugin("logfmt", {**COLUMNS, "fields": NAMES})),
}


def main() -> None:
    """Print a table. The first run of each format is a warm-up."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    options.add_argument("--records", type=int, default=500_000, help="default: %(default)s")
    options.add_argument("--runs", type=int, default=3, help="measured runs of each format; default: %(default)s")
    chosen = options.parse_args()
    spent: dict[str, list[float]] = defaultdict(list)
    with Broker() as broker:
        sources = {name: load(broker, name, make(), chosen.records) for name, (make, _) in CASES.items()}
        for run in range(chosen.runs + 1):
            for name, (_, parser) in CASES.items():
                topic = f"{sources[name]}-{run}"
                rules = FILTERS.get(name.partition(", ")[2], ())
                task, _ = measure(broker, chosen.records, topic, source=sources[name], parser=parser, filters=rules)
                if run:
                    spent[name].append(task)
    usual = statistics.median(spent["idc-access-log"])
    table = [
        [name, f"{len(make()[0])}", spread(spent[name], ".2f"), f"{usual / statistics.median(spent[name]):.2f}"]
        for name, (make, _) in CASES.items()
    ]
    print(
        markdown(["parser", "bytes a line", "CPU-s per million", "records per CPU-second, idc-access-log = 1"], table)
    )


def load(broker: Broker, name: str, lines: list[bytes], count: int) -> str:
    """Write this many records in turns to a new topic with one partition; return its name."""
    topic = broker.create_topic("raw-" + name.translate(str.maketrans(" ", "-", ",")))
    producer = Producer({**PRODUCER, "bootstrap.servers": broker.bootstrap})
    for number, line in enumerate(islice(cycle(lines), count)):
        producer.produce(topic, line, None, 0)
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()
    return topic


if __name__ == "__main__":
    main()
