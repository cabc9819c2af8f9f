"""
Write the lines and events of this folder with their outcomes: `python tests/data/make.py`.

It imports nothing from Winnow. A good line and its outcome are built from the same known fields, so no parsing is
needed. The reason of a bad line is the fault that was put into it. Hosts are from RFC 2606, addresses from RFC 5737 and
RFC 3849.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import fastavro

FOLDER = Path(__file__).parent
MARK = b"<<<!>>>"
FIELDS = [
    "commandid",
    "houseid",
    "gathertime",
    "srcip",
    "destip",
    "srcport",
    "destport",
    "domainname",
    "proxytype",
    "proxyip",
    "proxyport",
    "title",
    "content",
    "url",
    "logid",
]
PLAIN = {
    "commandid": b"4711",
    "houseid": b"512",
    "gathertime": b"20240229235959",
    "srcip": b"192.0.2.17",
    "destip": b"198.51.100.4",
    "srcport": b"49152",
    "destport": b"443",
    "domainname": b"www.example.org",
    "url": b"http://www.example.org/index.html",
    "logid": b"880001",
}


class Example(NamedTuple):
    """A line and its outcome: a value or a reason."""

    line: bytes
    value: str | None = None
    reason: str | None = None


# Lines ----------------------------------------------------------------------------------------------------------------


def joined(fields: dict[str, bytes]) -> bytes:
    """Join all fields into a line."""
    return MARK + (MARK + b"," + MARK).join(fields.get(name, b"") for name in FIELDS) + MARK


def good(**changes: bytes) -> Example:
    """Write an accepted line. Blanks around the six checked fields are not part of them."""
    fields = PLAIN | changes
    house, when, source, target, out, into = (
        fields[name].decode().strip(" \t")
        for name in ("houseid", "gathertime", "srcip", "destip", "srcport", "destport")
    )
    columns = [house, when, f"{bracketed(source)}:{out}", f"{bracketed(target)}:{into}", escaped(fields["url"])]
    return Example(joined(fields), value="|".join(columns))


def bad(reason: str, **changes: bytes) -> Example:
    """Write a line with a fault in a field."""
    return Example(joined(PLAIN | changes), reason=reason)


def bracketed(address: str) -> str:
    """Write an address in the form that a port can follow."""
    return f"[{address}]" if ":" in address else address


def escaped(url: bytes) -> str:
    """Percent-encode the bytes that would break the output, as simply as possible."""
    written, rest = "", url
    while rest:
        size = next((n for n in (1, 2, 3, 4) if is_one_character(rest[:n])), 0)
        if size == 0 or rest[:1] == b"|" or rest[0] < 0x20 or rest[0] == 0x7F:
            written, rest = written + f"%{rest[0]:02X}", rest[1:]
        else:
            written, rest = written + rest[:size].decode(), rest[size:]
    return written


def is_one_character(piece: bytes) -> bool:
    """Return whether these bytes encode one character."""
    try:
        return len(piece.decode()) == 1
    except UnicodeDecodeError:
        return False


URLS = (
    b"",
    b"/",
    b"http://www.example.org/a,b,,c",
    b"http://www.example.org/a|b||c",
    b"http://www.example.org/?q=%7C%20%e4%b8%ad",
    b"http://www.example.org/?next=http://example.net/%3Fa=b&c=d#top",
    b"http://[2001:db8::80]:8080/x",
    "http://www.example.org/中文/нет/é😀".encode(),
    "http://www.example.org/搜索?词=广州".encode("gbk"),
    "http://www.example.org/台北".encode("big5"),
    "http://www.example.org/".encode("utf-16-le"),
    b"http://www.example.org/\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xfe\xff",
    b"http://www.example.org/cut-in-a-character/\xe4\xb8",
    b"http://www.example.org/a\tb\x00c\x1b[31m\x7f",
    b" http://www.example.org/blanks  ",
    b"'\"; DROP TABLE logs; --",
    b"<<<!>>",
    b"<!>>>,<<<!>",
    b"http://www.example.org/<<<!>>>/,/<<<!>>>",
    b"http://www.example.org/?" + b"k=v&" * 500,
    b"http://www.example.org/" + b"%20" * 700 + "长".encode() * 99,
    "网址".encode("gbk") * 300,
    b"x" * 31 + b"|" + b"y" * 32 + b"\xff" + b"z" * 63,
    b"javascript:void(0)",
    b"\xef\xbb\xbfhttp://www.example.org/byte-order-mark",
)
TEXTS = (
    b"",
    b",",
    b"News, weather, and more",
    b"a|b|c",
    "首页,新闻".encode(),
    "首页,新闻".encode("gbk"),
    b"<<<",
    b">>>,<<<",
    b"<<<!>>>",
    b"\x00\x01\xff",
)
ADDRESSES = (
    b"0.0.0.0",
    b"255.255.255.255",
    b"203.0.113.9",
    b"::",
    b"::1",
    b"2001:db8::1",
    b"2001:DB8:0:0:0:0:0:1",
    b"2001:0db8:0000:0000:0000:0000:0000:0001",
    b"1:2:3:4:5:6:7::",
    b"::ffff:192.0.2.1",
    b"64:ff9b::198.51.100.7",
)
NO_ADDRESSES = (
    b"",
    b"-",
    b"192.0.2",
    b"192.0.2.256",
    b"192.0.2.01",
    b"192.0.2.1.5",
    b"192.0.2.1/24",
    b"192.0.2.1:80",
    b"192. 0.2.1",
    b"www.example.org",
    b"[2001:db8::1]",
    b"2001:db8::1%eth0",
    b"2001:db8::1::2",
    b"2001:db8:1",
    b":::",
    b"1:2:3:4:5:6:7:8:9",
    b"2001:db8::g",
    b"::12345",
    b"::192.0.2.300",
    "\uff11\uff19\uff12.0.2.1".encode(),
)
TIMES = (b"00010101000000", b"99991231235959", b"20000229120000", b"20230228000000", b"19991231235959")
NO_TIMES = (
    b"",
    b"2024-02-29 23:59:59",
    b"2024022923595",
    b"202402292359590",
    b"20230229000000",
    b"19000229000000",
    b"00000101000000",
    b"20241301000000",
    b"20240001000000",
    b"20240431000000",
    b"20240100000000",
    b"20240101240000",
    b"20240101006000",
    b"20240101000060",
    b"2024010100000x",
    b"1708000000000 ",
)
PORTS = (b"0", b"1", b"80", b"65535", b"00080", b"0" * 30 + b"7")
NO_PORTS = (
    b"",
    b"65536",
    b"99999",
    b"18446744073709551696",
    b"-1",
    b"+80",
    b"8 0",
    b"80.0",
    b"0x50",
    b"http",
    "\uff18".encode(),
)
NO_HOUSES = (b"", b" ", b"\t \t")
ILLEGAL_HOUSES = (b"5|12", b"5\x0012", b"5\t12", b"512\x7f", "机房".encode("gbk"), b"\xe6\x9c")


def good_lines() -> Iterator[Example]:
    """Write accepted lines."""
    yield good()
    for url in URLS:
        yield good(url=url)
    for title, content in zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True):
        yield good(title=title, content=content, url=b"http://www.example.org/a,b")
    for source, target in zip(ADDRESSES, reversed(ADDRESSES), strict=True):
        yield good(srcip=source, destip=target)
    for when in TIMES:
        yield good(gathertime=when)
    for out, into in product(PORTS, PORTS[::-1][:2]):
        yield good(srcport=out, destport=into)
    for house in (b"0", b"A-17", b"x" * 300, "机房 3".encode(), b"5,12", b"5%7C12", b"5 12"):
        yield good(houseid=house)
    for blank in (b" ", b"\t", b"  \t "):
        checked = ("houseid", "gathertime", "srcip", "destip", "srcport", "destport")
        yield good(**{name: blank + PLAIN[name] + blank for name in checked})
        yield good(**{name: PLAIN[name] + blank for name in checked}, url=blank + b"u" + blank)
    yield good(proxytype=b"1", proxyip=b"203.0.113.99", proxyport=b"3128", commandid=b"", logid=b"")
    yield good(proxytype=b"?", proxyip=b"not an address", proxyport=b"-1", commandid=b"\xff", logid=b"|")
    for case in (good(), good(url=b""), good(logid=b"")):
        yield case._replace(line=case.line + b"\r")  # with the line feed that ends the row, a CRLF


def bad_lines() -> Iterator[Example]:
    """Write rejected lines."""
    whole, pieces = joined(PLAIN), joined(PLAIN).split(b",")
    yield from (Example(line, reason="empty") for line in (b"", b"\r"))
    for line in (
        b" ",
        b"-",
        b"<<<!>>>",
        b"<<<!>>><!>>>",
        whole[1:],
        whole[:-1],
        whole + b" ",
        b" " + whole,
        whole + b"\r\r",
        b"\xef\xbb\xbf" + whole,
        whole[: len(whole) // 2],
        whole.replace(MARK, b""),
        whole.replace(b"<<<!>>>", b"<<<!>>"),
        b'192.0.2.1 - - [29/Feb/2024:23:59:59 +0000] "GET / HTTP/1.1" 200 512',
        b'{"houseid": 512}',
        "找不到".encode("gbk"),
        b"\x00" * 64,
        b"x" * 5000,
    ):
        yield Example(line, reason="no_marker")
    for line in (
        MARK + MARK,
        MARK + b"," + MARK,
        b",".join(pieces[:-1]),
        b",".join([*pieces, MARK + MARK]),
        b",".join(pieces[1:]),
        whole.replace(b",", b";"),
        whole.replace(b",", b", "),
        whole + whole,
        whole + b"," + whole,
        joined(PLAIN | {"title": b"a" + MARK + b"," + MARK + b"b"}),
        whole[: whole.index(b"www")] + MARK,
        MARK * 15,
    ):
        yield Example(line, reason="field_count")
    yield from (bad("houseid", houseid=house) for house in NO_HOUSES)
    yield from (bad("gathertime", gathertime=when) for when in NO_TIMES)
    for name in ("srcip", "destip"):
        yield from (bad(name, **{name: address}) for address in NO_ADDRESSES)
    for name in ("srcport", "destport"):
        yield from (bad(name, **{name: port}) for port in NO_PORTS)
    yield from (bad("illegal_character", houseid=house) for house in ILLEGAL_HOUSES)
    yield bad("houseid", houseid=b"", gathertime=b"", srcip=b"", destip=b"", srcport=b"", destport=b"")
    yield bad("gathertime", houseid=b"5|12", gathertime=b"", destport=b"")
    yield bad("srcip", srcip=b"x", destip=b"x", srcport=b"x")
    yield bad("destip", destip=b"x", srcport=b"x", destport=b"x")
    yield bad("srcport", srcport=b"x", destport=b"x", houseid=b"5|12")


def lines() -> list[Example]:
    """Write good and bad lines alternately until both run out."""
    fine, faulty = list(good_lines()), list(bad_lines())
    pairs = max(len(fine), len(faulty))
    return [case for at in range(pairs) for case in (*fine[at : at + 1], *faulty[at : at + 1])]


# Flume's events -------------------------------------------------------------------------------------------------------

EVENT = fastavro.parse_schema(
    {
        "type": "record",
        "name": "AvroFlumeEvent",
        "fields": [{"name": "headers", "type": {"type": "map", "values": "string"}}, {"name": "body", "type": "bytes"}],
    }
)
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"host": "192.0.2.5"},
    {"host": "192.0.2.5", "key": "k1", "timestamp": "1709251199000"},
    {"timestamp": "1709251199000", "Severity": "5", "Facility": "20", "priority": "165", "version": "1"},
    {"flume.syslog.status": "Invalid", "Severity": "0", "Facility": "0"},
    {"file": "/var/log/access/2024-02-29.log", "basename": "2024-02-29.log", "byteoffset": "0"},
    {"": ""},
    {"名": "值", "emoji": "😀"},
    {"topic": "raw-logs", "note": "x" * 200},
    {f"h{number}": str(number) for number in range(70)},
)
BODIES = (
    joined(PLAIN),
    joined(PLAIN | {"url": "网址|".encode("gbk")}),
    joined(PLAIN) + b"\r\n",
    b"not an access log line",
    b"\x00\x01\xff|,\n",
    b"",
    b"x" * 63,
    b"x" * 64,
    b"y" * 2000,
)


def events() -> Iterator[dict[str, Any]]:
    """Pair every shape of headers with a body, and every body with headers."""
    for at in range(max(len(HEADERS), len(BODIES)) * 2):
        yield {"headers": HEADERS[at % len(HEADERS)], "body": BODIES[at % len(BODIES)]}


# Files ----------------------------------------------------------------------------------------------------------------


def files() -> dict[str, bytes]:
    """Return the content of each generated file of this folder."""
    cases = lines()
    expected = [
        {"line": number} | ({"reason": case.reason} if case.value is None else {"value": case.value})
        for number, case in enumerate(cases, 1)
    ]
    return {
        "idc-access-log.txt": b"".join(case.line + b"\n" for case in cases),
        "idc-access-log.expected.jsonl": _rows(json.dumps(row, ensure_ascii=False) for row in expected),
        "flume-avro-events.txt": _rows(
            row for event in events() for row in (f"hex {encoded(event).hex()}", f"dec {event}")
        ),
    }


def encoded(event: dict[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, EVENT, event)
    return out.getvalue()


def _rows(rows: Iterator[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


if __name__ == "__main__":
    for name, content in files().items():
        (FOLDER / name).write_bytes(content)
