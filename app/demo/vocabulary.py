"""The parts of raw lines: good ones with their cleansed forms, and others with the reason for their rejection."""

from __future__ import annotations

import random

MARK = b"<<<!>>>"
SEPARATOR = MARK + b"," + MARK
FIELDS = 15
COMMANDID, HOUSEID, GATHERTIME, SRCIP, DESTIP, SRCPORT, DESTPORT, DOMAIN = range(8)
TITLE, CONTENT, URL, LOGID = 11, 12, 13, 14

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

PORT_FAULTS = (b"", b"65536", b"-1", b"8o", b"80.0", b"+80", b"1e3", b"9" * 20, "\uff18\uff10".encode(), b"8 0")
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
"""For each reason, in order of precedence: the field and its invalid values."""


def make_fields(dice: random.Random) -> list[bytes]:
    """Make the 15 fields of a good line."""
    host = f"{dice.choice(SUBDOMAINS)}.{dice.choice(NAMES)}.{dice.choice(DOMAINS)}".encode()
    fields = [b""] * FIELDS
    fields[COMMANDID] = b"%d" % dice.choice((3111, 3111, 3112, 4001))
    fields[HOUSEID] = dice.choice(HOUSES)
    fields[GATHERTIME] = make_gathertime(dice)
    fields[SRCIP], fields[DESTIP] = _address(dice), _address(dice)
    fields[SRCPORT], fields[DESTPORT] = b"%d" % dice.randint(1024, 65535), dice.choice(DESTPORTS)
    fields[DOMAIN] = host
    if dice.random() < 0.08:
        fields[TITLE], fields[CONTENT] = dice.choice(WORDS).encode(), dice.choice(WORDS).encode("gbk", "ignore")
    fields[URL] = _url(host, dice)
    fields[LOGID] = b"%d" % dice.randint(2_556_928_065, 9_999_999_999)
    return fields


def make_gathertime(dice: random.Random) -> bytes:
    """Return a gather time; a few are at the limits of the calendar."""
    if dice.random() < 0.01:
        return dice.choice((b"00010101000000", b"99991231235959", b"20160229120000", b"20000229000000"))
    day, clock = dice.randint(1, 30), dice.randint(0, 86_399)
    return b"201711%02d%02d%02d%02d" % (day, clock // 3600, clock // 60 % 60, clock % 60)


def _address(dice: random.Random) -> bytes:
    if dice.random() < 0.02:
        return dice.choice(IPV6)
    return b"%d.%d.%d.%d" % tuple(dice.choice((0, 1, 58, 112, 202, 223, 255, dice.randint(0, 255))) for _ in range(4))


def _url(host: bytes, dice: random.Random) -> bytes:
    """Return a url: plain, with a query, with GBK or UTF-8 words, or with bytes that must be escaped."""
    kind = dice.random()
    if kind < 0.02:
        return b""
    url = b"http://" + host + b"/" + dice.choice(PATHS).encode()
    if kind < 0.25:
        url += b"?" + dice.choice(QUERIES) % dice.randint(0, 99_999)
    elif kind < 0.29:
        url += b"?q=" + dice.choice(WORDS).encode(dice.choice(("gbk", "utf-8")), "ignore")
    elif kind < 0.31:
        # The letter after the line break marks it as part of the url rather than the end of the line.
        url += b"?x=" + dice.choice(BREAKS) + b"z"
    return url


def _clean_url(url: bytes) -> bytes:
    """Escape what cleansing must escape; Python's own decoder finds the bytes that are not UTF-8."""
    return b"".join(_clean_letter(letter) for letter in url.decode("utf-8", "surrogateescape"))


def _clean_letter(letter: str) -> bytes:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return b"%%%02X" % (code - 0xDC00)
    return b"%%%02X" % code if code < 0x20 or letter in "|\x7f" else letter.encode()


def make_templates(fields: list[bytes], dice: random.Random) -> tuple[bytes, bytes]:
    """Return a good line and its cleansed form, each with `%b` for the gather time and then for the source port."""
    a, b, c, d, e, f, g = (dice.choice(BLANKS) for _ in range(7))
    raw = [field.replace(b"%", b"%%") for field in fields]
    raw[HOUSEID], raw[GATHERTIME] = c + raw[HOUSEID], d + b"%b" + e
    raw[SRCIP], raw[DESTIP] = raw[SRCIP] + f, g + raw[DESTIP]
    raw[SRCPORT], raw[DESTPORT] = b"%b", a + raw[DESTPORT] + b
    source, dest = (b"[%b]" % ip if b":" in ip else ip for ip in (fields[SRCIP], fields[DESTIP]))
    url = _clean_url(fields[URL]).replace(b"%", b"%%")
    clean = (fields[HOUSEID], b"%b", source + b":%b", dest + b":" + fields[DESTPORT], url)
    return with_end(join(raw), dice), b"|".join(clean)


def join(fields: list[bytes]) -> bytes:
    return MARK + SEPARATOR.join(fields) + MARK


def with_end(line: bytes, dice: random.Random) -> bytes:
    """Return the line with a line ending as sockets leave them: mostly none."""
    return line + dice.choice(ENDS)


def make_fault(fields: list[bytes], dice: random.Random) -> tuple[bytes | None, str]:
    """Return a line that must be rejected, and the reason."""
    reason = dice.choice(("empty", "no_marker", "field_count", *FIELD_FAULTS))
    match reason:
        case "empty":
            return dice.choice((None, b"", b"\n", b"\r\n", b"\r")), reason
        case "no_marker":
            return _without_marker(fields, dice), reason
        case "field_count":
            return _with_wrong_count(fields, dice), reason
    return with_end(join(_with_faults(fields, reason, dice)), dice), reason


def _with_faults(fields: list[bytes], reason: str, dice: random.Random) -> list[bytes]:
    """Insert one fault, and sometimes a second one of lower precedence that must not be reported."""
    faulty, reasons = list(fields), list(FIELD_FAULTS)
    later = dice.choice(reasons[reasons.index(reason) :])
    for each in (later, reason) if dice.random() < 0.3 else (reason,):  # if both affect the same field, `reason` wins
        field, values = FIELD_FAULTS[each]
        faulty[field] = dice.choice(values)
    return faulty


def _without_marker(fields: list[bytes], dice: random.Random) -> bytes:
    """Return a line with a cut marker, or a line of another format."""
    line = join(fields)
    cuts = (line[len(MARK) :], line[: -len(MARK)], line[1:], line[:-1], line[: -len(MARK) - 3])
    others = (b'{"houseid": "238", "url": null}', b"- - [12/Nov/2017] GET /", b" ", b"\x00")
    return dice.choice((*cuts, b",".join(fields)[:300] + b".", *others))


def _with_wrong_count(fields: list[bytes], dice: random.Random) -> bytes:
    """Return a line with markers but without exactly 15 fields."""
    line = join(fields)
    spaced = line.replace(SEPARATOR, MARK + b", " + MARK, 1)
    wrong = (join(fields[:-1]), join([*fields, b""]), join(fields[:12]), join([b"x"]), line + b"\n" + line, spaced)
    return with_end(dice.choice(wrong), dice)
