"""The parts of good raw lines and their cleansed forms, for the demo and the tests."""

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
