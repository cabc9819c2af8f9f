"""The formats beside `delimited`: what each takes and refuses, and that both engines agree on every byte."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable, Mapping
from datetime import date
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import registry
from parsers.contract import Parser
from parsers.csv_lines import CsvLines, fields_of
from parsers.errors import ParserOptionError
from parsers.fields.checks import Matches, check_of
from parsers.fields.located import cut, pattern_of
from parsers.json_lines import JsonLines
from parsers.logfmt import Logfmt, pairs_of
from parsers.regex import FORMATS, Matched, Regex
from parsers.testing import Outcome, batch, outcomes
from tests.fuzz import formats

ENGINES = ("compiled", "plain")
Make = Callable[..., Parser]


def parse(make: Make, options: Mapping[str, Any], *lines: bytes | None) -> list[Outcome]:
    """Return the results for the lines, on which both engines must agree."""
    compiled, plain = (outcomes(make(**options, engine=engine).parse(batch(lines)), len(lines)) for engine in ENGINES)
    assert compiled == plain
    return compiled


def one(make: Make, options: Mapping[str, Any], line: bytes | None) -> Outcome:
    (outcome,) = parse(make, options, line)
    return outcome


# JSON -----------------------------------------------------------------------------------------------------------------

JSON = {"fields": {"url": "/http/request/url", "n": "/n"}, "output": "{url}|{n}"}


@pytest.mark.parametrize(
    ("line", "cleansed"),
    [
        (rb'{"http": {"request": {"url": "/a"}}, "n": 1}', b"/a|1"),
        (
            rb' { "n" : 12345678901234567890.10e+5 , "http":{"request":{"url":"\/a\u00e9"}}} ',
            "/aé|12345678901234567890.10e+5".encode(),
        ),
        (rb'{"n": true, "http": {"request": {"url": "\ud83d\ude00"}}}', "😀|true".encode()),
        (rb'{"\u006e": false, "http": null}', b"|false"),
        (rb'{"http": {"request": 7}, "n": null, "x": [[], {}, [{"n": 9}]]}', b"|"),
        (rb'{"a": {"n": 3, "n": 4}, "n": ""}', b"|"),
        (b"{}\r\n", b"|"),
    ],
)
def test_members_of_an_object(line: bytes, cleansed: bytes) -> None:
    """Numbers stay as written; a member that is missing, null or elsewhere is empty."""
    assert one(JsonLines, JSON, line) == cleansed


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[]", "not_json"),
        (b'"x"', "not_json"),
        (b"{} {}", "not_json"),
        (b'{"n": 1,}', "not_json"),
        (b'{"n": 01}', "not_json"),
        (b'{"n": NaN}', "not_json"),
        (b"{'n': 1}", "not_json"),
        (b'{"n": "\t"}', "not_json"),
        (rb'{"x": "\x"}', "not_json"),
        (b'{"x": "\xff"}', "not_json"),
        (b'\xef\xbb\xbf{"n": 1}', "not_json"),
        (rb'{"n": "\ud83d"}', "not_json"),
        (b'{"x": ' + b"[" * 64 + b"]" * 64 + b"}", "not_json"),
        (b'{"x": ' + b"[" * 100_000, "not_json"),
        (b'{"n": 1, "n": 1}', "duplicate"),
        (b'{"http": 1, "http": 2}', "duplicate"),
        (b'{"n": [1]}', "not_a_value"),
        (b'{"http": {"request": {"url": {}}}}', "not_a_value"),
        (b"", "empty"),
        (None, "empty"),
    ],
)
def test_what_is_no_object_of_values(line: bytes | None, reason: str) -> None:
    assert one(JsonLines, JSON, line)[0] == reason


def test_half_a_surrogate_pair_that_nobody_reads() -> None:
    assert one(JsonLines, JSON, rb'{"x": "\ud83d", "\ud83d": 1, "n": 2}') == b"|2"


def test_64_levels_are_not_too_deep() -> None:
    assert one(JsonLines, JSON, b'{"x": ' + b"[" * 63 + b"]" * 63 + b', "n": 1}') == b"|1"


def test_names_alone_are_members() -> None:
    assert one(JsonLines, {"fields": ["a", "b"], "output": "{b}|{a}"}, b'{"a": 1, "b": 2}') == b"2|1"


@pytest.mark.parametrize("size", [7, 8, 9, 24])
def test_every_character_of_a_name_counts(size: int) -> None:
    """Names are compared eight bytes at a time."""
    name = "abcdefghijklmnopqrstuvwxyz"[:size]
    others = (f"{name[:at]}_{name[at + 1 :]}" for at in range(size))
    line = "".join(f'"{other}": 0, ' for other in others) + f'"{name}": 1'

    assert one(JsonLines, {"fields": [name], "output": f"{{{name}}}"}, f"{{{line}}}".encode()) == b"1"


def test_a_pointer_has_escapes() -> None:
    assert one(JsonLines, {"fields": {"a": "/x~1y~0"}, "output": "{a}"}, b'{"x/y~": 1}') == b"1"


# Regular expressions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line", "output", "cleansed"),
    [
        (
            "combined",
            formats.COMBINED,
            "{remote_addr};{remote_user};{time_local};{request};{method};{url};{protocol};{status};{bytes};{referer};{user_agent}",
            (
                b"203.0.113.9;alice;24/Nov/2026:06:00:00 +0000;GET /a|b?c=d HTTP/1.1;GET;/a|b?c=d;HTTP/1.1;200;612"
                b";https://example.org/;curl/8"
            ),
        ),
        ("common", b'::1 - - [x] "-" 400 -', "{remote_addr};{method};{url};{bytes}", b"::1;-;;-"),
        (
            "syslog-rfc3164",
            formats.SYSLOG,
            "{priority};{time};{host};{tag};{pid};{message}",
            b"34;Nov  4 22:14:15;web-1;su;230;'su root' failed for lonvick",
        ),
        (
            "syslog-rfc5424",
            formats.SYSLOG_5424,
            "{priority};{version};{time};{host};{app};{procid};{msgid};{message}",
            b"165;1;2026-11-04T22:14:15.003Z;web-1;evntslog;12;ID47;An event",
        ),
        (
            "haproxy-http",
            formats.HAPROXY,
            "{client};{client_port};{frontend};{backend};{server};{timers};{status};{bytes};{termination};{method};{url}",
            b"10.0.1.2;33317;http-in;static;srv1;10/0/30/69/109;200;2750;----;GET;/index.html",
        ),
    ],
)
def test_a_named_format(name: str, line: bytes, output: str, cleansed: bytes) -> None:
    options = {"log_format": name, "output": output, "output_separator": ";"}

    assert parse(Regex, options, line, line + b"\r\n", b"x") == [
        cleansed,
        cleansed,
        ("no_match", "the line does not match the pattern"),
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_one_field_of_a_named_format_is_enough(name: str) -> None:
    """A format gives the same value of a field, however many are read."""
    line = {"combined": formats.COMBINED, "common": formats.COMBINED[: formats.COMBINED.index(b' "https')]}.get(
        name, {"syslog-rfc3164": formats.SYSLOG, "syslog-rfc5424": formats.SYSLOG_5424}.get(name, formats.HAPROXY)
    )
    field = "time_local" if name.startswith("com") else "time"

    assert one(Regex, {"log_format": name, "output": f"{{{field}}}"}, line) in line  # type: ignore[operator]


def test_an_escaped_quote_is_part_of_a_field() -> None:
    line = formats.COMBINED.replace(b"curl/8", rb"a \"b\"")

    assert one(Regex, {"log_format": "combined", "output": "{user_agent}"}, line) == rb"a \"b\""


def test_a_group_without_a_part_in_the_match_is_empty() -> None:
    options = {"pattern": "^(?P<a>x)?(?P<b>y)$", "output": "{a}|{b}"}

    assert parse(Regex, options, b"xy", b"y", b"", None) == [
        b"x|y",
        b"|y",
        ("empty", "the line is empty"),
        ("empty", "the record has no value"),
    ]


def test_a_pattern_in_a_class_is_left_alone() -> None:
    """Groups that nobody reads are dropped from the pattern only where they are groups."""
    options = {"pattern": r"^(?P<a>[(?P<b>]+)(?P<c>x)$", "output": "{c}"}

    assert parse(Regex, options, b"(?x", b"bx", b"x")[:2] == [b"x", b"x"]


@pytest.mark.parametrize(
    ("pattern", "line", "cleansed"),
    [
        (r"^\(?<pri>(?P<a>.*)$", b"<pri>x", b"x"),
        (r"^(?P<b>[0-9]+) \(?<b>(?P<a>.*)$", b"1 <b>x", b"x"),
        (r"^[(?<a-z]+ (?P<a>[0-9]+)$", b"ab< 1", b"1"),
        (r"^[(?<a-z]+ (?P<a>[0-9]+)$", b"abP 1", None),
        (r"^(?P<a>[0-9]{02})$", b"1{02}", b"1{02}"),
        (r"^(?P<a>[0-9]{1,02})$", b"1", None),
        (r"^x[^\x00-\xff](?P<a>[0-9])$", b"x1", None),
    ],
)
def test_a_rare_pattern_means_the_same_to_both_engines(pattern: str, line: bytes, cleansed: bytes | None) -> None:
    """A text like a group's, a repetition with a leading zero, which is a text, and a class without a byte."""
    outcome = one(Regex, {"pattern": pattern, "output": "{a}"}, line)

    assert outcome == cleansed or (cleansed is None and outcome[0] == "no_match")


@pytest.mark.parametrize(
    ("pattern", "is_one_pass"),
    [
        (FORMATS["combined"], True),
        (FORMATS["syslog-rfc5424"], True),
        (r"^(?P<a>\d{1,3})(?:\.(?P<b>[^\W\d]+?))?\s*(?P<c>é|ü)(?P<d>(?s:.*))$", True),
        ("^(?P<a>x*)(?P<b>x)$", False),
        ("^(?P<a>x)", False),
        ("(?i)^(?P<a>x)$", False),
        (r"^(?P<a>x\b)$", False),
        ("^(?P<a>[[:alpha:]]+)$", False),
        ("^(?P<a>x{,2})$", False),
        (r"^\\(?P<a>x{0,10})$", True),
        (r"^\(?<b>(?P<a>x)$", False),
        ("^[(?<b](?P<a>x)$", False),
        ("^(?P<a>x{02})$", False),
        ("^(?P<a>x{0,02})$", False),
        (r"^(?P<a>x)[^\x00-\xff]$", False),
        ("^(?P<a>(?:x*)*)$", False),
        ("^(?P<a>(?:xyz){700})$", False),
    ],
)
def test_what_a_kernel_can_match(pattern: str, is_one_pass: bool) -> None:
    """Where a byte can go on in two ways, or the syntax means something else in Python, RE2 matches."""
    groups = list(re.findall(r"\?P<(\w+)>", pattern))

    assert (Matched(pattern, groups, groups)._automaton is not None) is is_one_pass


ATOMS = st.sampled_from(
    [
        *("a", "b", "é", ".", r"\d", r"\s", r"\S", r"\W", "[ab]", "[^a]", "[^a\n]", "[a-c1]", r"[\w-]", r"\x00", r"\."),
        *("[(?<a-z]", r"\(?<x>", r"[^\x00-\xff]"),
    ]
)


def _groups_of(pattern: str) -> str:
    """Give each `(@` in a pattern a name."""
    names = iter("abcdefghijklmnopqrstuvwxyz")
    return re.sub("@", lambda _: f"?P<{next(names)}>", pattern)


PATTERNS = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | inner.map(lambda each: f"(@{each})")
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{02}", "*?", "??"])).map(
            lambda p: f"(?:{p[0]}){p[1]}"
        )
        | st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})")
        | inner.map(lambda each: f"(?s:{each})")
    ),
    max_leaves=6,
).map(lambda inner: _groups_of(f"^(@{inner})$"))


@settings(max_examples=300, deadline=None)
@given(pattern=PATTERNS, lines=st.lists(st.text("ab1é .\n\v\x00", max_size=6), min_size=1, max_size=6))
def test_a_kernel_matches_as_re2_does(pattern: str, lines: list[str]) -> None:
    groups = re.findall(r"\?P<(\w+)>", pattern)
    options = {"pattern": pattern, "output": "|".join(f"{{{name}}}" for name in groups), "escape": groups}

    parse(Regex, options, *(line.encode() for line in lines))


# CSV and logfmt -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        (b'a,"b ""c"", d"', b'a|b "c", d'),
        (b'"",', b"|"),
        (b'"1\n2",x', b"1%0A2|x"),
        (b'a"b,c', b'a"b|c'),
        (b'"a"b,c', ("bad_quotes", "byte 3 after a closing quote is no separator")),
        (b'a,"b', ("bad_quotes", "the quote at byte 2 is not closed")),
        (b'a,"b""', ("bad_quotes", "the quote at byte 2 is not closed")),
        (b"a", ("field_count", "the line has 1 field, not 2")),
        (b"a,b,", ("field_count", "the line has 3 fields, not 2")),
    ],
)
def test_csv(line: bytes, outcome: Outcome) -> None:
    assert one(CsvLines, {"fields": ["a", "b"], "output": "{a}|{b}", "escape": ["a"]}, line) == outcome


def test_csv_with_another_separator() -> None:
    assert one(CsvLines, {"fields": ["a", "b"], "output": "{a}|{b}", "separator": "\t"}, b'1,2\t"3\t"') == (
        "illegal_character",
        "b is '3\\t', which contains a character that would break the output",
    )


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        (b'level=info msg="a \\"b\\" \\\\" x=1', b'info|a "b" \\'),
        (b'  msg= level="" ', b"|"),
        (b"level", b"|"),
        (b'msg="\\n"', b"|%0A"),
        (rb'msg="\x1b[31mred"', b"|%1B[31mred"),
        (rb'msg="caf\u00e9 \u003ca\u003E \U0001F600"', "|café <a> 😀".encode()),
        (rb'msg="\a\b\f\r\t\v\xfF\xc3\xa9\\n"', "|%07%08%0C%0D%09%0B%FFé\\n".encode()),
        (
            rb'level="\xff"',
            ("illegal_character", "level is '\\xff', which contains a character that would break the output"),
        ),
        (rb'msg="C:\dir"', ("not_logfmt", "byte 0 begins no key=value pair")),
        (rb'level=1 msg="\ud83d\ude00"', ("not_logfmt", "byte 8 begins no key=value pair")),
        (rb'x="\U00110000"', ("not_logfmt", "byte 0 begins no key=value pair")),
        (rb'x="\U0000dfff"', ("not_logfmt", "byte 0 begins no key=value pair")),
        (rb'x="\u00e"', ("not_logfmt", "byte 0 begins no key=value pair")),
        (rb'x="\x1g"', ("not_logfmt", "byte 0 begins no key=value pair")),
        (b"level=1 level=2", ("duplicate", "the key level is there twice")),
        (b"x=1 x=2 level=3", b"3|"),
        (b"level=1 =2", ("not_logfmt", "byte 8 begins no key=value pair")),
        (b'msg="a', ("not_logfmt", "byte 0 begins no key=value pair")),
        (b'msg="a"b', ("not_logfmt", "byte 0 begins no key=value pair")),
        (b" ", ("not_logfmt", "byte 0 begins no key=value pair")),
    ],
)
def test_logfmt(line: bytes, outcome: Outcome) -> None:
    options = {"fields": {"level": "level", "text": "msg"}, "output": "{level}|{text}", "escape": ["text"]}

    assert one(Logfmt, options, line) == outcome


@pytest.mark.parametrize(
    ("split", "line"),
    [
        (lambda line: list(fields_of(line, b",")), b'"%b"' % (b'a ""' * 25_000)),
        (lambda line: list(pairs_of(line)), b'msg="%b"' % (rb"\"How are you, all of you?\", she said. " * 2_500)),
    ],
)
def test_a_long_value_in_quotes_takes_little_memory(split: Callable[[bytes], object], line: bytes) -> None:
    """A few of them in a chunk must not end a worker."""
    tracemalloc.start()
    try:
        split(line)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 20 * len(line)


# Output as JSON -------------------------------------------------------------------------------------------------------


def test_output_as_json() -> None:
    """Checked numbers are JSON numbers; everything else is a text with JSON's escapes."""
    options = {
        "fields": ["a", "n", "e"],
        "output": ["n", "a", "e"],
        "output_format": "json",
        "checks": {"n": "number"},
        "escape": ["e"],
    }

    found = parse(CsvLines, options, b'"q""\\\x01\n|",-1.5,\xff', "中,7,%".encode(), b"\xff,7,x", b"a,07,x")

    assert found[:2] == [
        rb'{"n":-1.5,"a":"q\"\\\u0001\n|","e":"%FF"}',
        '{"n":7,"a":"中","e":"%"}'.encode(),
    ]
    assert [outcome[0] for outcome in found[2:]] == ["illegal_character", "n"]


def test_a_member_of_the_output_can_be_the_key() -> None:
    """Without the escapes of the line, which are no part of the text."""
    parser = JsonLines(fields=["a", "n"], output=["n", "a"], output_format="json", checks={"n": "integer"})
    values = parser.parse(
        batch([rb'{"n": 1, "a": "x\",\"a\":\"y"}', b'{"n": 22}', rb'{"n": 3, "a": "b\\c\td"}'])
    ).values

    assert cut(values, pattern_of(parser, "n")).to_pylist() == [b"1", b"22", b"3"]
    assert cut(values, pattern_of(parser, "a")).to_pylist() == [b'x","a":"y', b"", b"b\\c\td"]


# Checks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "good", "bad", "expected"),
    [
        ("integer", [b"0", b"-12", b" 7 "], [b"", b"01", b"+1", b"1.0", b"-"], "not an integer"),
        ("number", [b"0", b"-1.50", b"1e9", b"2E-3"], [b".5", b"1.", b"1e", b"0x1", b"NaN"], "not a number"),
        ({"one-of": ["GET", 1]}, [b"GET", b"1"], [b"get", b""], "not one of GET, 1"),
        ({"matches": "^/[a-z]*$"}, [b"/", b"/abc"], [b"/A", b"x/"], "which does not match ^/[a-z]*$"),
        (
            {"time": "%d/%b/%Y:%H:%M:%S %z"},
            [b"24/Nov/2026:06:00:00 +0100"],
            [b"24/Nov/2026:06:00:00", b"31/Nov/2026:06:00:00 +0100", b"\xff"],
            "not a time in the format %d/%b/%Y:%H:%M:%S %z",
        ),
        ({"time": "%b %d %H:%M:%S"}, [b"Feb 29 06:00:00"], [b"Feb 30 06:00:00"], "not a time in the format"),
        (
            {"time": "%G-W%V-%u"},
            [b"2026-W48-2", b"2026-W53-7"],
            [b"2026-W54-1", b"2026-W48", b"2026-11-24"],
            "not a time in the format %G-W%V-%u",
        ),
        ({"time": "%%Y %b %d"}, [b"%Y Feb 29"], [b"%Y Feb 30", b"2026 Feb 28"], "not a time in the format"),
        (
            {"time": "rfc3339"},
            [b"2026-11-24T06:00:00Z", b"2026-11-24T06:00:00.123+01:00"],
            [b"2026-11-24", b"2026-11-24T06:00:00", b"2026-13-24T06:00:00Z"],
            "not a time in the format rfc3339",
        ),
        (
            {"time": "rfc3339"},
            [b"2026-11-24t06:00:00z", b"2026-11-24T06:00:00.123456789-00:00", b"2028-02-29T23:59:59Z"],
            [
                b"20261124T060000Z",
                b"2026-W48-2T06:00:00Z",
                b"2026-11-24T06Z",
                b"2026-11-24T06:00Z",
                b"2026-11-24T06:00:00,5Z",
                b"2026-11-24T06:00:00.Z",
                b"2026-11-24T06:00:00+01",
                b"2026-11-24T06:00:00+0100",
                b"2026-11-24T06:00:00+00:00:30.5",
                b"2026-11-24T06:00:00+01:60",
                b"2026-11-24T06:00:00+24:00",
                b"2026-11-24 06:00:00Z",
                b"2026-11-24T06:00:60Z",
                b"2026-02-29T06:00:00Z",
            ],
            "not a time in the format rfc3339",
        ),
        (
            {"network": ["10.0.0.0/8", "fd00::/8"]},
            [b"10.1.2.3", b"fd00::1"],
            [b"11.0.0.1", b"fe80::1", b"fd00::1%eth0", b"10.0.0.01"],
            "not an address in 10.0.0.0/8, fd00::/8",
        ),
    ],
)
def test_a_check(check: object, good: list[bytes], bad: list[bytes], expected: str) -> None:
    options = {"fields": ["a", "b"], "output": "{b}", "separator": ";", "checks": {"a": check}}

    found = parse(_delimited, options, *(value + b";x" for value in (*good, *bad)))

    assert found[: len(good)] == [b"x"] * len(good)
    assert [outcome[0] for outcome in found[len(good) :]] == ["a"] * len(bad)
    assert all(expected in str(outcome[1]) for outcome in found[len(good) :])


@pytest.mark.parametrize(
    "pattern",
    ["[äöü]", r"[^a-z\]é]", "[]é]", "[[:alpha:]é]", "é*", "é+", "é?", "x|é{2}", "(?i)é", "(?si:x|\né)", r"(\[|[é])"],
)
def test_a_pattern_of_bytes_cuts_no_character(pattern: str) -> None:
    """RE2 would take it for others: `^[äöü]` matches é, too."""
    with pytest.raises(ParserOptionError, match=re.escape(f"{pattern} is applied to bytes")):
        check_of({"matches": pattern})


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("^(?:ä|ö)+$", "ööä"),
        (r"\[ä\]", "[ä]"),
        (r"ä\+", "ä+"),
        ("[[:alpha:]]ä", "xä"),
        ("(?s)ä.ö", "ä\nö"),
        ("[a-z]+ (?P<i>ä)", "x ä"),
    ],
)
def test_a_pattern_may_have_any_character(pattern: str, value: str) -> None:
    check = check_of({"matches": pattern})

    assert isinstance(check, Matches)
    assert check.accepts(value.encode())


def _delimited(**options: Any) -> Parser:
    return registry.load("delimited", options)


def test_checks_with_and_without_parameters_keep_their_order() -> None:
    options = {"fields": ["a", "b"], "output": "{b}", "checks": {"b": {"one-of": ["x"]}, "a": "port"}}

    assert [outcome[0] for outcome in parse(_delimited, options, b"y,y", b"y,x")] == ["b", "a"]


def test_an_address_in_a_network_is_bracketed() -> None:
    options = {"fields": ["a"], "output": "{a}", "checks": {"a": {"network": "fd00::/8"}}}

    assert one(_delimited, options, b"fd00::1") == b"[fd00::1]"


# Wrong options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("regex", {"output": "{a}"}, "write either pattern or log.format"),
        ("regex", {"output": "{a}", "pattern": "(?P<a>x)", "log.format": "common"}, "write either"),
        ("regex", {"output": "{a}", "log.format": "combine"}, "did you mean 'combined'?"),
        ("regex", {"output": "{a}", "pattern": "(?P<a>"}, "pattern: "),
        ("regex", {"output": "{a}", "pattern": "(x)"}, "write a group as (?P<name>…)"),
        ("regex", {"output": "{a}", "pattern": "x"}, "fields must be a list of names"),
        ("regex", {"output": "{a}", "pattern": 7}, "pattern must be text, not 7"),
        ("json", {"output": "{a}", "fields": {"a": "http.url"}}, "'http.url' is not a JSON Pointer"),
        ("json", {"output": "{a}", "fields": {"a": "/x", "b": "/x/y"}}, "a is the same member as b, or an object"),
        ("json", {"output": "{a}", "fields": "a"}, "fields must be a list of names"),
        ("json", {"fields": ["a"]}, "option 'output' is missing: write output: …"),
        ("json", {"output": "{a}", "fields": ["a"], "check": {}}, "no option 'check'; did you mean 'checks'?"),
        ("logfmt", {"output": "{a}", "fields": {"a": "x y"}}, "'x y' is not a key"),
        ("csv", {"output": "{a}", "fields": ["a"], "separator": ";;"}, "separator must be one ASCII character"),
        ("csv", {"output": "{a}", "fields": ["field_count"], "checks": {"field_count": "ip"}}, "reserved reason code"),
        ("csv", {"output": "{a}", "fields": ["a"], "output.format": "jsn"}, "output.format must be text or json"),
        ("csv", {"output": "{a}", "fields": ["a"], "output.format": "json"}, "output must be a list of fields"),
        ("csv", {"output": {"a": 1}, "fields": ["a"], "output.format": "json"}, "output must be a list of fields"),
        ("csv", {"output": ["a"], "fields": ["a"]}, "output must be text"),
        ("csv", {"output": ["b"], "fields": ["a"], "output.format": "json"}, "output: no field 'b'"),
        (
            "csv",
            {"output": ["b", "a", "b"], "fields": ["a", "b"], "output.format": "json"},
            "output: b named more than once",
        ),
        ("csv", {"output": "{a}", "fields": ["a", "a"]}, "fields: a named more than once"),
        ("csv", {"output": "{a}", "fields": ["a"], "checks": {"a": {"one-of": "x"}}}, "one-of must be a list"),
        (
            "csv",
            {
                "output": "{a}",
                "fields": ["a"],
                "checks": {"a": {"one-of": ["x", 7, False, 1.1, None, date(2026, 1, 1)]}},
            },
            "one-of takes texts, not False, 1.1, None, 2026-01-01: quote them",
        ),
        ("csv", {"output": "{a}", "fields": ["a"], "checks": {"a": "matches"}}, "matches needs a parameter"),
        ("csv", {"output": "{a}", "fields": ["a"], "checks": {"a": {"matches": "("}}}, "matches: "),
        ("csv", {"output": "{a}", "fields": ["a"], "checks": {"a": {"matches": "^[äöü]"}}}, "is applied to bytes"),
        ("regex", {"output": "{a}", "pattern": "(?P<a>ä+)"}, "is applied to bytes"),
        (
            "csv",
            {"output": "{a}", "fields": ["a"], "checks": {"a": {"time": "iso"}}},
            "time must be rfc3339 or a format",
        ),
        ("csv", {"output": "{a}", "fields": ["a"], "checks": {"a": {"time": "%Q"}}}, "time: "),
        ("csv", {"output": "{a}", "fields": ["a"], "checks": {"a": {"time": "%Y-W%V-%u"}}}, "'%G'"),
        ("csv", {"output": "{a}", "fields": ["a"], "checks": {"a": {"time": "%G-W%V"}}}, "a weekday directive"),
        ("csv", {"output": "{a}", "fields": ["a"], "checks": {"a": {"time": "%d/%d"}}}, "redefinition"),
        ("csv", {"output": "{a}", "fields": ["a"], "checks": {"a": {"network": ["10.0.0.1/8"]}}}, "network: "),
        ("csv", {"output": "{a}", "fields": ["a"], "checks": {"a": {"net": 1}}}, "no check 'net'"),
        ("csv", {"output": "{a}", "fields": ["a"], "checks": {"a": {"ip": True}}}, "ip takes no parameter: write ip"),
    ],
)
def test_a_wrong_option_is_named(name: str, options: Mapping[str, object], message: str) -> None:
    with pytest.raises(ParserOptionError) as error:
        registry.load(name, options)

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("check", "separator", "values"),
    [
        ({"time": "%d/%b/%Y %H:%M"}, " ", "times"),
        ({"time": "%c"}, ":", "times"),
        ({"time": "%H%M%z"}, "-", "times"),
        ({"time": "rfc3339"}, ".", "times"),
        ({"time": "%b%d"}, " ", ""),
        ("integer", "-", "numbers"),
        ("integer", "+", ""),
        ("number", "+", "numbers"),
        ({"network": "10.0.0.0/8"}, ".", "IP addresses"),
    ],
)
def test_a_separator_that_values_hold_is_refused(check: object, separator: str, values: str) -> None:
    """Otherwise lines with such values are rejected, whatever else they hold."""
    options = {"fields": ["a", "b"], "output": f"{{a}}{separator}{{b}}", "checks": {"a": check}}
    options["output.separator"] = separator

    if not values:
        registry.load("csv", options)
        return
    with pytest.raises(ParserOptionError, match=f"also occurs in {values} such as a: choose another"):
        registry.load("csv", options)


# Both engines agree ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", formats.cases())
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_engines_agree(name: str, seed: int) -> None:
    """Damaged lines of each format have the same outcome on both engines, alone and in a batch."""
    case, random = formats.cases()[name], Random(seed)

    case.pair.outcomes([case.damaged(random) for _ in range(20)])


@pytest.mark.parametrize("name", formats.cases())
def test_good_lines_are_taken(name: str) -> None:
    """The property above speaks about cleansed lines, too."""
    case = formats.cases()[name]

    assert set(case.pair.outcomes(case.lines)) == {"cleansed"}
