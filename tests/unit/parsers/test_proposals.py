"""What is proposed for lines of an unknown format."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import registry
from parsers.proposals import MOST_COLUMNS, Proposal, propose
from parsers.regex import FORMATS
from parsers.testing import batch
from tests.independent import line

FEW = settings(max_examples=25, deadline=None)
COMBINED = b'203.0.113.9 - - [24/Nov/2026:06:00:00 +0000] "GET /a|b HTTP/1.1" 200 612 "-" "curl/8"'


def best(*lines: bytes) -> Proposal:
    return propose(lines)[0]


# Lines of each format -------------------------------------------------------------------------------------------------

words = st.text(string.ascii_letters, min_size=1, max_size=8)
texts = st.text(string.printable.replace("\r", "").replace("\n", ""), max_size=20)
numbers = st.integers(0, 70_000).map(str)
addresses = st.ip_addresses().map(str)
log_times = st.datetimes().map(lambda each: f"{each:%d/%b}/{each.year:04}:{each:%H:%M:%S}")
rfc3339 = st.datetimes().map(lambda each: f"{each.isoformat()}Z")
syslog_times = st.datetimes().map(lambda each: f"{each:%b} {each.day:2} {each:%H:%M:%S}")
quoted = texts.map(lambda text: text.replace("\\", "\\\\").replace('"', '\\"'))
requests = st.builds("{} /{} HTTP/1.1".format, st.sampled_from(["GET", "POST"]), words)
common = st.builds(
    '{} - {} [{} +0000] "{}" {} {}'.format, addresses, words, log_times, requests, st.integers(100, 599), numbers
)
combined = st.builds('{} "{}" "{}"'.format, common, quoted, quoted)
rfc3164 = st.builds("{} {} {}[{}]: {}".format, syslog_times, words, words, numbers, texts)
rfc5424 = st.builds("<{}>1 {} {} {} {} - - {}".format, st.integers(0, 191), rfc3339, words, words, numbers, texts)
haproxy = st.builds(
    '{} lb haproxy[1]: {}:{} [{}.655] http-in static/srv1 10/0/30/69/109 200 {} - - ---- 1/1/1/1/0 0/0 {{a|b}} "{}"'.format,
    syslog_times, addresses, numbers, log_times, numbers, requests,
)  # fmt: skip
LOGS = {
    "combined": combined,
    "common": common,
    "haproxy-http": haproxy,
    "syslog-rfc3164": rfc3164,
    "syslog-rfc5424": rfc5424,
}
pairs = st.builds('level={} msg="{}" took={}'.format, words, quoted, numbers)
objects = st.fixed_dictionaries(
    {
        "time": rfc3339,
        "http": st.fixed_dictionaries({"url": st.text(), "status": st.integers()}),
        "tags": st.lists(st.text()),
    }
).map(json.dumps)


def several(lines: st.SearchStrategy[str]) -> st.SearchStrategy[list[bytes]]:
    return st.lists(lines.map(str.encode), min_size=1, max_size=6)


def test_the_lines_of_every_log_format_are_generated() -> None:
    """A new format needs a strategy here."""
    assert FORMATS.keys() == LOGS.keys()


@FEW
@given(data=st.data())
@pytest.mark.parametrize("name", LOGS)
def test_a_log_format_is_recognised(name: str, data: st.DataObject) -> None:
    """By its name."""
    found = best(*data.draw(several(LOGS[name])))

    assert ("regex", name, 1.0) == (found.parser, found.options["log.format"], found.share)


@FEW
@given(numbers=st.lists(st.integers(0, 99), min_size=1, max_size=6))
def test_the_access_log_is_recognised(numbers: list[int]) -> None:
    """Of which the demo makes lines; it has no options."""
    found = best(*map(line, numbers))

    assert ("idc-access-log", {}, 1.0) == (found.parser, found.options, found.share)


@FEW
@given(lines=several(objects))
def test_json_is_recognised(lines: list[bytes]) -> None:
    """Its fields are the members that are no list, wherever they are."""
    found = best(*lines)

    assert ("json", 1.0) == (found.parser, found.share)
    assert {"time": "/time", "url": "/http/url", "status": "/http/status"} == found.options["fields"]


@FEW
@given(lines=several(pairs))
def test_logfmt_is_recognised(lines: list[bytes]) -> None:
    """Its fields are the keys."""
    found = best(*lines)

    assert ("logfmt", 1.0, ["level", "msg", "took"]) == (found.parser, found.share, found.options["fields"])


def in_quotes(text: str) -> str:
    return '"{}"'.format(text.replace('"', '""'))


@FEW
@given(
    rows=st.lists(st.lists(texts, min_size=3, max_size=3), min_size=1, max_size=6), separator=st.sampled_from(",;\t|")
)
def test_csv_is_recognised(rows: list[list[str]], separator: str) -> None:
    """Whatever is in the quotes."""
    twice = [rows[0], *rows]  # what comes again is no title, which `A,B,C` before `,,0` would be
    found = best(*(separator.join(map(in_quotes, row)).encode() for row in twice))

    assert ("csv", separator, 1.0) == (found.parser, found.options.get("separator", ","), found.share)
    assert ["field_1", "field_2", "field_3"] == found.options["fields"]


@FEW
@given(
    rows=st.lists(st.tuples(words, numbers, words, addresses), min_size=1, max_size=6),
    separator=st.sampled_from(";\t|\x01 "),
)
def test_delimited_lines_are_recognised(rows: list[tuple[str, ...]], separator: str) -> None:
    """By the separator that gives the same number of fields."""
    found = best(*(separator.join(row).encode() for row in rows))

    assert ("delimited", separator, 1.0) == (found.parser, found.options["separator"], found.share)
    assert ("integer", "ip") == (found.options["checks"]["field_2"], found.options["checks"]["field_4"])  # type: ignore[index]  # a mapping


# Any bytes ------------------------------------------------------------------------------------------------------------

pieces = st.sampled_from(
    [b'"', b",", b"|", b" ", b"=", b"{", b"}", b":", b"\\ud800", b"\xff", b"a", b"1", b"[", b"]", b"<<<!>>>", COMBINED]
)
rubbish = st.binary(max_size=40) | st.lists(pieces, max_size=20).map(b"".join)


@settings(max_examples=100, deadline=None)
@given(lines=st.lists(rubbish, max_size=8))
def test_any_bytes_have_proposals(lines: list[bytes]) -> None:
    """None raises; what is proposed can be built, does what it says, and every line has a result."""
    for found in propose(lines):
        parsed = registry.load(found.parser, found.options).parse(batch(lines))
        assert [*found.outputs.items()] == list(zip(parsed.rows.tolist(), parsed.values.to_pylist(), strict=True))
        assert list(found.rejects) == list(parsed.rejects())
        assert 0 < found.share <= 1
        assert str(found.options["output"]).count("{") <= MOST_COLUMNS if found.options else True


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"\\ud800": 1}'],
        [b'{"": {"a": 1}, "A b": 1, "1": 2, "empty": 3}'] * 2,
        [b'{"a":' * 500 + b"1" + b"}" * 500],
        [b"[" * 100_000],
        [b'{"a": ' + b"1" * 10_000 + b"}"],
        [b"," * 100_000],
        [b"a=1 b=2 a=3"],
        [b"\x00"],
        [b""],
    ],
)
def test_awkward_lines(lines: list[bytes]) -> None:
    """They are read, or not, but never end the command."""
    assert all(found.outputs for found in propose(lines))


# Which one ------------------------------------------------------------------------------------------------------------


def test_checks_and_output_of_an_access_log() -> None:
    """A text without a check may hold anything; `bytes` may be `-`, and the request is there in its parts."""
    found = best(COMBINED, b"rubbish")

    assert {
        "log.format": "combined",
        "checks": {"remote_addr": "ip", "time_local": {"time": "%d/%b/%Y:%H:%M:%S %z"}, "status": "integer"},
        "escape": ["remote_user", "method", "url", "protocol", "bytes", "referer", "user_agent"],
        "output": "{remote_addr}|{remote_user}|{time_local}|{method}|{url}|{protocol}|{status}|{bytes}|{referer}|{user_agent}",
    } == found.options
    assert {0: b"203.0.113.9|-|24/Nov/2026:06:00:00 +0000|GET|/a%7Cb|HTTP/1.1|200|612|-|curl/8"} == found.outputs
    assert [(1, "no_match", "the line does not match the pattern")] == [*found.rejects]
    assert (0.5, "regex with log.format 'combined'") == (found.share, str(found))


def test_a_more_specific_format_may_take_a_little_less() -> None:
    """A broken access log line has as many commas as any other."""
    broken = line(1).replace(b"<<<!>>>", b"", 1)
    found = propose([*map(line, range(30)), broken])

    assert ["idc-access-log", "csv"] == [each.parser for each in found[:2]]
    assert found[0].share < found[1].share == 1


CHECKED = [
    ("10.0.0.1", "ip"),
    ("2026-11-24T06:00:00.5Z", {"time": "rfc3339"}),
    ("20261124060000", "datetime"),
    ("2026-11-24 06:00:00,123", {"time": "%Y-%m-%d %H:%M:%S,%f"}),
    ("Nov  4 06:00:00", {"time": "%b %d %H:%M:%S"}),
    ("-12", "integer"),
    ("0.5", "number"),
    ("007", None),
    ("", None),
]


@pytest.mark.parametrize(("value", "check"), CHECKED)
def test_a_check_is_one_that_all_values_pass(value: str, check: object) -> None:
    """Blanks around them do not matter."""
    fine = best(*[f"x|{value}|y".encode(), f"z| {value}|y".encode()])
    not_all = best(*[f"x|{value}|y".encode(), b"z|free|y"])

    assert ({} if check is None else {"field_2": check}) == fine.options.get("checks", {})
    assert "checks" not in not_all.options


def test_a_port_is_known_by_its_name_too() -> None:
    """A status is a number as well."""
    found = best(b"srcport=80 status=200 support=7", b"srcport=443 status=404 support=9")

    assert {"srcport": "port", "status": "integer", "support": "integer"} == found.options["checks"]


HEADED = [b"Start Time,userAgent,Status,empty", b"2026-11-24 06:00:00,a b,200,", b"2026-11-24 06:00:01,c d,404,"]


def test_a_header_names_the_fields() -> None:
    """It is rejected like any line that fails a check, and none of the records."""
    found = best(*HEADED)

    assert ("csv", ["start_time", "user_agent", "status", "empty_"]) == (found.parser, found.options["fields"])
    assert (True, 2, 1.0) == (found.has_header, found.records, found.share)
    assert [(0, "start_time")] == [(each.row, each.reason) for each in found.rejects]


@pytest.mark.parametrize("lines", [HEADED[1:], [b"a,b", b"c,d"], [b"x,x,1", b"y,z,1"]])
def test_a_first_line_that_is_like_the_others_is_no_header(lines: list[bytes]) -> None:
    """Only names that fail a check of their column are known to be names."""
    found = best(*lines)

    assert not found.has_header
    assert "field_1" in found.options["fields"]  # type: ignore[operator]  # a list


def test_a_field_is_what_nearly_all_lines_have() -> None:
    """A member that some lines lack is left out, and so is half of a pair of words."""
    found = best(*[b'{"a": 1, "b": {"a": 2}}'] * 39, b'{"a": 1, "c": 3}')

    assert {"a": "/a", "b_a": "/b/a"} == found.options["fields"]
    assert "{a}|{b_a}" == found.options["output"]


def test_the_output_has_a_dozen_fields_at_most() -> None:
    """Of any number of columns, all of which have a name."""
    found = best(b";".join(b"%d" % n for n in range(40)))
    options: Any = found.options

    assert (40, 12) == (len(options["fields"]), len(options["checks"]))
    assert options["output"].endswith("|{field_12}")


def test_prose_is_hardly_taken() -> None:
    """The share says so."""
    found = propose([b"word " * number for number in range(1, 20)])

    assert all(each.share < 0.5 for each in found)
    assert [] == propose([])
