"""Raw access-log lines made by recipe, each with what cleansing must make of it. Runs in the demo and the tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from io import BytesIO
from itertools import count, islice
from typing import Any, NamedTuple

import fastavro
import numpy as np
from confluent_kafka import KafkaError, Message, Producer

MARK = b"<<<!>>>"
SEPARATOR = MARK + b"," + MARK
FIELDS = 15
COMMANDID, HOUSEID, GATHERTIME, SRCIP, DESTIP, SRCPORT, DESTPORT, DOMAIN = range(8)
TITLE, CONTENT, URL, LOGID = 11, 12, 13, 14

POOL = 4096
"""How many different lines, gather times and ports a recipe combines."""
CHUNK = 10_000
LAST_DIGITS = [b"%04d" % number for number in range(CHUNK)]
LOAD_SECONDS = 120


class LoadFailed(Exception):
    """Records could not be produced to the source topic."""


class Line(NamedTuple):
    """One record of a source topic and what must become of it: a cleansed value, or a reject's reason."""

    key: bytes
    value: bytes | None
    timestamp: int
    expected: bytes | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Recipe:
    """
    What a source topic is made of; the same recipe always makes the same records.

    Args:
        partitions: how many partitions the records are spread over.
        count: how many records in all.
        seed: another seed, other lines.
        bad: the fraction of lines that must be rejected.
        enveloped: the fraction of lines inside Flume's Avro envelope; at 1, a broken envelope is among the rejects.
        first_timestamp: in ms, of each partition's first record; every next record is a millisecond later.
    """

    partitions: int
    count: int
    seed: int = 1
    bad: float = 0.01
    enveloped: float = 0.0
    first_timestamp: int = 1_510_464_542_000

    def size(self, partition: int) -> int:
        """Return how many records the partition holds."""
        return self.count // self.partitions + (partition < self.count % self.partitions)

    def lines(self, partition: int) -> Iterator[Line]:
        """Make one partition's records in order; a key names its partition and sequence number: `3:000000017`."""
        pool, size = _pool(self.seed), self.size(partition)
        for start in range(0, size, CHUNK):
            yield from islice(self._chunk(pool, partition, start), size - start)

    def _chunk(self, pool: Pool, partition: int, start: int) -> Iterator[Line]:
        """Make a chunk of records that depends on nothing but the recipe, the partition and its place."""
        dice = np.random.default_rng([self.seed, partition, start])
        bad, enveloped = dice.random(CHUNK) < self.bad, dice.random(CHUNK) < self.enveloped
        picks = dice.integers(0, POOL, (4, CHUNK))
        values, expected = _good(pool, *picks[:3].tolist())
        reasons: list[str | None] = [None] * CHUNK
        for at in np.flatnonzero(bad).tolist():
            values[at], reasons[at] = pool.bad[picks[0, at]]
            expected[at] = None
        for at in np.flatnonzero(enveloped | (bad & (self.enveloped > 0))).tolist():
            values[at], reasons[at] = self._envelop(
                pool, values[at], reasons[at], wanted=bool(enveloped[at]), pick=picks[3, at]
            )
        prefix, timestamp = b"%d:%05d" % (partition, start // CHUNK), self.first_timestamp + start
        columns = zip(map(prefix.__add__, LAST_DIGITS), values, count(timestamp), expected, reasons, strict=False)
        return map(partial(tuple.__new__, Line), columns)  # no Python frame per line: this is what makes it quick

    def _envelop(
        self, pool: Pool, value: bytes | None, reason: str | None, *, wanted: bool, pick: int
    ) -> tuple[bytes | None, str | None]:
        """Wrap a value as Flume does; a fifth of the rejects of an all-Flume topic become broken envelopes."""
        if reason and self.enveloped >= 1 and pick % 5 == 0:
            return pool.broken_envelopes[pick // 5 % len(pool.broken_envelopes)], "envelope"
        # Where both formats are mixed, a raw line without its marker would be a matter of opinion: it is wrapped.
        if value is None or not (wanted or reason == "no_marker"):
            return value, reason
        return pool.headers[pick % len(pool.headers)] + LENGTHS[len(value)] + value, reason


def load(bootstrap: str, topic: str, recipe: Recipe, *, progress: Callable[[int], None] = lambda _: None) -> None:
    """Produce a recipe's records to a fresh topic, in order per partition, so that offset = sequence number."""
    failures: list[KafkaError] = []
    producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap})

    def failed(error: KafkaError | None, _: Message) -> None:
        if error:
            failures.append(error)

    produced = 0
    for partition, lines in _by_turns(recipe):
        for key, value, timestamp, _, _ in lines:
            while not _enqueued(producer, topic, value, key, partition, None, failed, timestamp):
                producer.poll(0.05)  # the queue is full: the broker is behind
        produced += len(lines)
        progress(produced)
    unsent = producer.flush(LOAD_SECONDS)
    if unsent or failures:
        why = failures[0].str() if failures else f"no answer within {LOAD_SECONDS} s"
        message = f"{unsent + len(failures)} of {recipe.count} records did not reach {topic} at {bootstrap}: {why}"
        raise LoadFailed(message)


PRODUCER: dict[str, str | int | float | bool] = {
    "log_level": 0,
    "compression.type": "lz4",
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 200_000,
    "delivery.report.only.error": True,
}


def _enqueued(producer: Producer, *record: object) -> bool:
    """Say whether the producer has taken the record."""
    try:
        producer.produce(*record)  # type: ignore[arg-type]
    except BufferError:
        return False
    return True


def _by_turns(recipe: Recipe) -> Iterator[tuple[int, list[Line]]]:
    """Take slices of the partitions in turn, so that all of them grow together."""
    sources = {partition: recipe.lines(partition) for partition in range(recipe.partitions)}
    while sources:
        for partition, source in list(sources.items()):
            if lines := list(islice(source, 2_000)):
                yield partition, lines
            else:
                del sources[partition]


@dataclass(frozen=True, slots=True)
class Pool:
    """What lines are combined from, made once, so that a line costs two joins; rows of `good` are columns here."""

    heads: Column
    stamps: Column
    ips: Column
    ports: Column
    tails: Column
    clean_houses: Column
    clean_sources: Column
    clean_rests: Column
    bad: list[tuple[bytes | None, str]]
    headers: list[bytes]
    broken_envelopes: list[bytes]


Column = list[bytes]


def _good(pool: Pool, lines: list[int], stamps: list[int], ports: list[int]) -> tuple[list[Any], list[Any]]:
    """Combine picked lines with picked gather times and source ports: the raw values and the cleansed ones."""
    when, out = _picked(pool.stamps, stamps), _picked(pool.ports, ports)
    raw = zip(_picked(pool.heads, lines), when, _picked(pool.ips, lines), out, _picked(pool.tails, lines), strict=True)
    sources, rests = _picked(pool.clean_sources, lines), _picked(pool.clean_rests, lines)
    clean = zip(_picked(pool.clean_houses, lines), when, sources, out, rests, strict=True)
    return list(map(b"".join, raw)), list(map(b"".join, clean))


def _picked(column: Column, picks: list[int]) -> Column:
    return list(map(column.__getitem__, picks))


@cache
def _pool(seed: int) -> Pool:
    """Make the pool of a seed."""
    dice = random.Random(seed)  # noqa: S311 - lines to look at, not secrets
    raw = [_fields(dice) for _ in range(POOL)]
    heads, ips, tails, houses, sources, rests = map(list, zip(*(_cut(fields, dice) for fields in raw), strict=True))
    return Pool(
        heads=heads,
        stamps=[_gathertime(dice) for _ in range(POOL)],
        ips=ips,
        ports=[b"%d" % dice.randint(1024, 65535) for _ in range(POOL)],
        tails=tails,
        clean_houses=houses,
        clean_sources=sources,
        clean_rests=rests,
        bad=[_fault(fields, dice) for fields in raw],
        headers=[_envelope_headers(dice) for _ in range(64)],
        broken_envelopes=[broken for fields in raw[:64] for broken in _broken_envelopes(fields, dice)],
    )


SUBDOMAINS = ("www", "m", "img", "static", "api", "news", "bbs", "job")
NAMES = ("sumecjob", "taobao", "example", "jd", "weather", "10086", "shop-nj", "edu", "video", "xinhua")
DOMAINS = ("com", "cn", "com.cn", "net", "org")
PATHS = ("Social.aspx", "", "index.html", "img/2017/11/banner.png", "list.php", "a/b/c/detail.jsp", "favicon.ico", "s")
QUERIES = (b"id=%d", b"page=%d&size=20", b"callback=jQuery%d&_=1510464542", b"ids=1,2,%d", b"q=a|b&n=%d", b"t=%d#top")
WORDS = (
    "南京人才网",
    "招聘信息, 南京",
    "首页 - 新闻|体育",
    "天气预报",
    "手机 充值, 优惠",
    "a <<<!>>> b",
    "Größe",
    "видео",
)
BREAKS = (b"\t", b"\n", b"\x00", b"\x7f", b"\r", b"\xc3", b"\xe4\xb8", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80")
HOUSES = (*(b"238", b"238", b"1007", b"NJ-01", b"3") * 20, "南京一号".encode())
IPV6 = (b"2001:db8::1", b"2001:DB8:0:1::a3f", b"fe80::d6ae:52ff:fe01:2", b"::1", b"::ffff:192.0.2.33", b"2400:3200::")
DESTPORTS = (b"80",) * 12 + (b"443",) * 5 + (b"8080", b"0", b"65535", b"00080")
BLANKS = (b"",) * 297 + (b" ", b"\t", b" \t ")
ENDS = (b"",) * 46 + (b"\r\n",) * 2 + (b"\n", b"\r")


def _fields(dice: random.Random) -> list[bytes]:
    """Make the 15 fields of a good line."""
    host = f"{dice.choice(SUBDOMAINS)}.{dice.choice(NAMES)}.{dice.choice(DOMAINS)}".encode()
    fields = [b""] * FIELDS
    fields[COMMANDID] = b"%d" % dice.choice((3111, 3111, 3112, 4001))
    fields[HOUSEID] = dice.choice(HOUSES)
    fields[GATHERTIME] = _gathertime(dice)
    fields[SRCIP], fields[DESTIP] = _address(dice), _address(dice)
    fields[SRCPORT], fields[DESTPORT] = b"%d" % dice.randint(1024, 65535), dice.choice(DESTPORTS)
    fields[DOMAIN] = host
    if dice.random() < 0.08:
        fields[TITLE], fields[CONTENT] = dice.choice(WORDS).encode(), dice.choice(WORDS).encode("gbk", "ignore")
    fields[URL] = _url(host, dice)
    fields[LOGID] = b"%d" % dice.randint(2_556_928_065, 9_999_999_999)
    return fields


def _gathertime(dice: random.Random) -> bytes:
    """Make a gather time; a few lie at the ends of the calendar."""
    if dice.random() < 0.01:
        return dice.choice((b"00010101000000", b"99991231235959", b"20160229120000", b"20000229000000"))
    day, clock = dice.randint(1, 30), dice.randint(0, 86_399)
    return b"201711%02d%02d%02d%02d" % (day, clock // 3600, clock // 60 % 60, clock % 60)


def _address(dice: random.Random) -> bytes:
    if dice.random() < 0.02:
        return dice.choice(IPV6)
    return b"%d.%d.%d.%d" % tuple(dice.choice((0, 1, 58, 112, 202, 223, 255, dice.randint(0, 255))) for _ in range(4))


def _url(host: bytes, dice: random.Random) -> bytes:
    """Make a url: plain, with a query, with GBK or UTF-8 words, or with bytes that must be escaped."""
    kind = dice.random()
    if kind < 0.02:
        return b""
    url = b"http://" + host + b"/" + dice.choice(PATHS).encode()
    if kind < 0.25:
        url += b"?" + dice.choice(QUERIES) % dice.randint(0, 99_999)
    elif kind < 0.29:
        url += b"?q=" + dice.choice(WORDS).encode(dice.choice(("gbk", "utf-8")), "ignore")
    elif kind < 0.31:
        # The letter behind the break keeps a line's end from being taken for the url's.
        url += b"?x=" + dice.choice(BREAKS) + b"z"
    return url


def _clean_url(url: bytes) -> bytes:
    """Escape what cleansing must escape: Python's own decoder says which bytes are not UTF-8."""
    return b"".join(_clean_letter(letter) for letter in url.decode("utf-8", "surrogateescape"))


def _clean_letter(letter: str) -> bytes:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that the decoder let pass
        return b"%%%02X" % (code - 0xDC00)
    return b"%%%02X" % code if code < 0x20 or letter in "|\x7f" else letter.encode()


def _cut(fields: list[bytes], dice: random.Random) -> tuple[bytes, ...]:
    """Cut a good line, and its cleansed form, where the gather time and the source port go."""
    a, b, c, d, e, f, g = (dice.choice(BLANKS) for _ in range(7))
    source, dest = (b"[%b]" % ip if b":" in ip else ip for ip in (fields[SRCIP], fields[DESTIP]))
    return (
        MARK + fields[COMMANDID] + SEPARATOR + c + fields[HOUSEID] + SEPARATOR + d,
        e + SEPARATOR + fields[SRCIP] + f + SEPARATOR + g + fields[DESTIP] + SEPARATOR,
        SEPARATOR + SEPARATOR.join([a + fields[DESTPORT] + b, *fields[DOMAIN:]]) + MARK + dice.choice(ENDS),
        fields[HOUSEID] + b"|",
        b"|" + source + b":",
        b"|" + dest + b":" + fields[DESTPORT] + b"|" + _clean_url(fields[URL]),
    )


PORT_FAULTS = (
    b"",
    b"65536",
    b"-1",
    b"8o",
    b"80.0",
    b"+80",
    b"1e3",
    b"99999999999999999999",
    "\uff18\uff10".encode(),
    b"8 0",
)
ADDRESS_FAULTS = (
    *(b"", b"256.1.1.1", b"01.2.3.4", b"1.2.3", b"1.2.3.4.5", b"1.2.3.4:80", b"a.b.c.d", b"1..3.4", b"1.2.3.-4"),
    *(b"fe80::1%eth0", b"[::1]", b"1::2::3", b"12345::", b"1:2:3:4:5:6:7", b":::", b"g::1"),
)
FIELD_FAULTS: dict[str, tuple[int, tuple[bytes, ...]]] = {
    "houseid": (HOUSEID, (b"", b"  ", b"\t")),
    "gathertime": (
        GATHERTIME,
        (
            *(b"", b"2017111213290", b"201711121329022", b"20171301000000", b"20171131000000", b"20170229000000"),
            *(b"19000229000000", b"00000101000000", b"20171112240000", b"20171112136000", b"20171112132960"),
            *(b"2017-11-12 13:", b"2017111213290x", b"-0171112132902", "\uff12\uff10171112132".encode()),
        ),
    ),
    "srcip": (SRCIP, ADDRESS_FAULTS),
    "destip": (DESTIP, ADDRESS_FAULTS),
    "srcport": (SRCPORT, PORT_FAULTS),
    "destport": (DESTPORT, PORT_FAULTS),
    "illegal_character": (HOUSEID, (b"23|8", b"2\x018", b"2\t8", b"23\x7f", "机房".encode("gbk"), b"\xe6\x9c")),
}
"""Per reason, in the order in which they apply: the field and what makes it wrong."""


def _fault(fields: list[bytes], dice: random.Random) -> tuple[bytes | None, str]:
    """Make a line that must be rejected, and why."""
    reason = dice.choice(("empty", "no_marker", "field_count", *FIELD_FAULTS))
    if reason in FIELD_FAULTS:
        return _with_end(_join(_with_faults(fields, reason, dice)), dice), reason
    whole: dict[str, Callable[[list[bytes], random.Random], bytes | None]] = {
        "empty": lambda _, dice: dice.choice((None, b"", b"\n", b"\r\n", b"\r")),
        "no_marker": _without_marker,
        "field_count": _with_wrong_count,
    }
    return whole[reason](fields, dice), reason


def _with_faults(fields: list[bytes], reason: str, dice: random.Random) -> list[bytes]:
    """Put one fault in, and sometimes a second one whose reason comes later and so must not be given."""
    faulty, reasons = list(fields), list(FIELD_FAULTS)
    later = dice.choice(reasons[reasons.index(reason) :])
    for each in (later, reason) if dice.random() < 0.3 else (reason,):  # where both are of one field, the reason wins
        field, values = FIELD_FAULTS[each]
        faulty[field] = dice.choice(values)
    return faulty


def _without_marker(fields: list[bytes], dice: random.Random) -> bytes:
    """Cut a line, or make one of another format."""
    line = _join(fields)
    cuts = (line[len(MARK) :], line[: -len(MARK)], line[1:], line[:-1], line[: -len(MARK) - 3])
    others = (
        b",".join(fields)[:300] + b".",
        b'{"houseid": "238", "url": null}',
        b"- - [12/Nov/2017] GET /",
        b" ",
        b"\x00",
    )
    return dice.choice(cuts + others)


def _with_wrong_count(fields: list[bytes], dice: random.Random) -> bytes:
    """Make a marked line that has not 15 fields."""
    line = _join(fields)
    spaced = line.replace(SEPARATOR, MARK + b", " + MARK, 1)
    wrong = (_join(fields[:-1]), _join([*fields, b""]), _join(fields[:12]), _join([b"x"]), line + b"\n" + line, spaced)
    return _with_end(dice.choice(wrong), dice)


def _join(fields: list[bytes]) -> bytes:
    return MARK + SEPARATOR.join(fields) + MARK


def _with_end(line: bytes, dice: random.Random) -> bytes:
    return line + dice.choice(ENDS)


def _envelope_headers(dice: random.Random) -> bytes:
    """Encode the header map of an AvroFlumeEvent, as Flume's netcat source and host interceptor fill it."""
    headers = {
        "host": f"58.223.1.{dice.randint(1, 254)}",
        "timestamp": str(1_510_464_542_000 + dice.randint(0, 999)),
    }
    if dice.random() < 0.3:
        headers["key"] = f"k{dice.randint(1, 9)}"
    return _avro({"type": "map", "values": "string"}, headers)


def _broken_envelopes(fields: list[bytes], dice: random.Random) -> tuple[bytes, ...]:
    """Make values that no AvroFlumeEvent decodes from: cut short, not closed, or never wrapped."""
    headers, line = _envelope_headers(dice), _join(fields)
    whole = headers + _avro("bytes", line)
    return whole[: len(headers) + 40], headers[:-1], headers[:9], b"\xff" * 24, line


def _avro(schema: str | dict[str, str], value: object) -> bytes:
    """Encode a value as bare Avro binary."""
    encoded = BytesIO()
    fastavro.schemaless_writer(encoded, schema, value)
    return encoded.getvalue()


LENGTHS = [_avro("long", length) for length in range(4096)]
"""Encoded lengths: no line of a recipe is longer."""
