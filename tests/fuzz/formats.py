"""Parsers of each format, on both engines, and lines that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple

from parsers.csv_lines import CsvLines
from parsers.delimited import Delimited
from parsers.json_lines import JsonLines
from parsers.logfmt import Logfmt
from parsers.regex import Regex
from tests.fuzz.engines import Pair
from tests.fuzz.mutations import TOKENS

COMBINED = (
    b'203.0.113.9 - alice [24/Nov/2026:06:00:00 +0000] "GET /a|b?c=d HTTP/1.1" 200 612 "https://example.org/" "curl/8"'
)
SYSLOG = b"<34>Nov  4 22:14:15 web-1 su[230]: 'su root' failed for lonvick"
SYSLOG_5424 = b'<165>1 2026-11-04T22:14:15.003Z web-1 evntslog 12 ID47 [exampleSDID@32473 iut="3" eventSource="A \\"b\\""] An event'
HAPROXY = (
    b"Nov  6 12:14:14 lb haproxy[14389]: 10.0.1.2:33317 [06/Nov/2026:12:14:14.655] http-in static/srv1 10/0/30/69/109 "
    b'200 2750 - - ---- 1/1/1/1/0 0/0 {example.org} {} "GET /index.html HTTP/1.1"'
)


class Case(NamedTuple):
    """A parser on both engines, lines that it takes, and what to damage them with."""

    pair: Pair
    lines: Sequence[bytes]
    tokens: Sequence[bytes]

    def damaged(self, random: Random) -> bytes:
        """Return one of the lines with up to three damages."""
        value = bytearray(random.choice(self.lines))
        for _ in range(random.randrange(4)):
            at = random.randrange(len(value) + 1)
            value[at : at + random.choice([0, 0, 1, 3])] = random.choice([*self.tokens, random.choice(TOKENS)])
        return bytes(value) + random.choice([b"", b"", b"\n", b"\r\n"])


@cache
def cases() -> Mapping[str, Case]:
    """Return a case for each format and each kind of output and check."""
    json: dict[str, Any] = {"fields": {"time": "/time", "url": "/http/url", "n": "/n"}, "escape": ["url"]}
    json_lines = (
        b'{"time": "6:00", "http": {"url": "/a|b", "x": [1, {"y": null}]}, "n": -1.50e3}',
        b' {"n":1,"http":{"url":"\\"\\u00e9\\ud83d\\ude00\\n\\/"},"\\u0074ime":true,"z":{}} ',
        b'{"n":0}',
    )
    json_tokens = (
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"\\u",
        b"\\ud83d",
        b"0",
        b".",
        b"e",
        b"null",
        b'"n":1',
    )
    pairs = (b"=", b'"', b"\\", b" ", b"level=1")
    columns = "{time}|{url}|{n}"
    checks = {"a": {"one-of": ["1", "x"]}, "b": {"matches": "^[0-9]"}, "c": {"network": ["10.0.0.0/8", "fd00::/8"]}}
    return {
        "json": Case(Pair.of(JsonLines, **json, output=columns, checks={"n": "number"}), json_lines, json_tokens),
        "json as json": Case(
            Pair.of(JsonLines, **json, output=["n", "url", "time"], output_format="json", checks={"n": "number"}),
            json_lines,
            json_tokens,
        ),
        "logfmt": Case(
            Pair.of(Logfmt, fields={"level": "level", "text": "msg"}, output="{level}|{text}", escape=["text"]),
            (b'level=info msg="a \\"b\\" c" x', b"msg=1 level= y=2"),
            pairs,
        ),
        "csv": Case(
            Pair.of(CsvLines, fields=["a", "b", "c"], output=["a", "c", "b"], output_format="json", escape=["b"]),
            (b'1,"a ""b"", c",x', b'"",,"\n"'),
            (b'"', b'""', b",", b"\n"),
        ),
        "combined": Case(
            Pair.of(
                Regex,
                log_format="combined",
                output="{remote_addr}|{status}|{url}|{bytes}|{user_agent}",
                escape=["url", "user_agent"],
                checks={"time_local": {"time": "%d/%b/%Y:%H:%M:%S %z"}, "status": "integer"},
            ),
            (COMBINED,),
            (b'"', b'\\"', b" ", b"[", b"]", b"-"),
        ),
        "pattern": Case(
            Pair.of(Regex, pattern="^(?P<a>a+)?(?P<b>[^ab])(?:(?P<c>b)|(?P<d>.*))", output="{a}|{b}|{c}|{d}"),
            (b"aa-b", b"-xyz"),
            (b"a", b"b", b"\xe4\xb8"),
        ),
        "checked": Case(
            Pair.of(Delimited, fields=["a", "b", "c"], output="{a}|{b}|{c}", checks=checks),
            (b"1, 23\t,10.1.2.3", b"x,4,fd00::1"),
            (b",", b" ", b"10.", b"1", b":"),
        ),
        "delimited as json": Case(
            Pair.of(Delimited, fields=["a", "b"], output=["b", "a"], output_format="json", escape=["a"]),
            (b'\x00"\\\x1f,b', b"\xff\xfe,\xe4\xb8\xad"),
            (b",", b'"', b"\\", b"\x08", b"\xf0"),
        ),
    }
