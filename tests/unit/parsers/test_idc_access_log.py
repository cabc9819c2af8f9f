"""The rules of the access log parser, one by one, on both engines."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parsers.idc_access_log import IdcAccessLog
from parsers.testing import Outcome, batch, outcomes

Sample = tuple[list[bytes], list[str]]
Line = Callable[..., bytes]
COMPILED = IdcAccessLog(engine="compiled")
REASONS = ["empty", "no_marker", "field_count", "houseid", "gathertime", "srcip", "destip", "srcport", "destport"]
REASONS += ["illegal_character"]
CLEAN = b"238|20171112132902|58.223.1.112:59948|202.102.92.18:80|"
URL = b"http://www.example.org/a?b=c,d"


def outcome(parser: IdcAccessLog, value: bytes | None) -> Outcome:
    return outcomes(parser.parse(batch([value])), 1)[0]


def reason(parser: IdcAccessLog, value: bytes | None) -> str:
    """Return the reason for which a value is rejected, or nothing."""
    found = outcome(parser, value)
    return "" if isinstance(found, bytes) else found[0]


def test_every_line_has_the_outcome_it_was_written_with(idc: IdcAccessLog, sample: Sample) -> None:
    """The written edge cases, good and bad, have their expected results."""
    lines, expected = sample

    found = outcomes(idc.parse(batch(lines)), len(lines))

    assert len(lines) > 200
    assert expected == [one.decode() if isinstance(one, bytes) else one[0] for one in found]


def test_a_comma_in_a_field_shifts_nothing(idc: IdcAccessLog, line: Line) -> None:
    """A comma in a title, a content or a url belongs to its field."""
    assert CLEAN + URL == outcome(idc, line(title=b"a,b,", content=b",", url=URL))


def test_reasons_are_listed_in_their_order(idc: IdcAccessLog) -> None:
    assert REASONS == list(idc.reasons)


def test_the_first_reason_wins(idc: IdcAccessLog, line: Line) -> None:
    """A line with every fault has the first one as its reason. Without that fault, it has the next."""
    faults = {
        "houseid": (b" \t", b"2|38"),
        "gathertime": (b"20171332132902", b"20171112132902"),
        "srcip": (b"1.2.3", b"1.2.3.4"),
        "destip": (b"::1%eth0", b"::1"),
        "srcport": (b"65536", b"65535"),
        "destport": (b"-1", b"0"),
    }
    fields = {name: bad for name, (bad, _) in faults.items()}
    whole = line(**fields)
    found = [reason(idc, value) for value in (None, b"\r\n", whole[1:], whole + b"!", whole + whole)]
    for name, (_, good) in faults.items():
        found.append(reason(idc, line(**fields)))
        fields[name] = good
    found.append(reason(idc, line(**fields)))

    assert ["empty", "empty", "no_marker", "no_marker", *REASONS[2:]] == found


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_one_line_end_is_not_part_of_the_line(idc: IdcAccessLog, line: Line, end: bytes) -> None:
    """A line ending is dropped, and a second one is an illegal byte."""
    assert CLEAN + URL == outcome(idc, line() + end)
    assert reason(idc, line() + b"\n" + end) == "no_marker"
    assert reason(idc, end) == "empty"


@pytest.mark.parametrize("value", [b"<", b"<<<!>>>", b"<<<!>>><!>>>", b"<<<!>>", b" ", b"\n\r\n", b",", b"\x00"])
def test_too_short_for_two_markers(idc: IdcAccessLog, value: bytes) -> None:
    """A line without room for an opening and a closing marker is rejected."""
    assert reason(idc, value) == "no_marker"


def test_two_markers_hold_one_empty_field(idc: IdcAccessLog) -> None:
    """Two markers with nothing between them are one field, not fifteen."""
    assert outcome(idc, b"<<<!>>>" * 2) == ("field_count", "the line has 1 field, not 15")


@pytest.mark.parametrize("url", [b"<", b">", b"<<<<", b">>>>", b"<<<!>>>", b"<<<!>>>,<<<!>>", b",<<<!>>>", b"<<<!>>>,"])
def test_parts_of_markers_in_a_field(idc: IdcAccessLog, line: Line, url: bytes) -> None:
    """A field may begin or end with a part of the marker: the leftmost complete separator splits."""
    between = line(url=url)[7:-7].split(b"<<<!>>>,<<<!>>>")
    expected = CLEAN + between[13] if len(between) == 15 else "field_count"

    found = outcome(idc, line(url=url))

    assert expected == (found if isinstance(found, bytes) else found[0])


def test_the_closing_marker_is_not_part_of_a_separator(idc: IdcAccessLog, line: Line) -> None:
    """If a line is cut off after a separator, its last marker closes the line and does not open a field."""
    cut = line(logid=b"")[: -len(b"<<<!>>>")]

    assert outcome(idc, cut) == ("field_count", "the line has 14 fields, not 15")


def test_blanks_round_checked_fields_are_trimmed(idc: IdcAccessLog, line: Line) -> None:
    """Blanks and tabs around the six checked fields are removed, but kept in the url."""
    padded = {
        name: b"\t " + value + b" \t"
        for name, value in {
            "houseid": b"2 38",
            "gathertime": b"20171112132902",
            "srcip": b"58.223.1.112",
            "destip": b"202.102.92.18",
            "srcport": b"59948",
            "destport": b"80",
        }.items()
    }

    assert CLEAN.replace(b"238", b"2 38") + b" u " == outcome(idc, line(**padded, url=b" u "))


def test_ipv6_is_written_in_brackets(idc: IdcAccessLog, line: Line) -> None:
    value = line(srcip=b"2001:DB8::1", destip=b"::ffff:1.2.3.4", srcport=b"007")

    assert outcome(idc, value) == b"238|20171112132902|[2001:DB8::1]:007|[::ffff:1.2.3.4]:80|" + URL


FIRST_AND_LAST = "\x80\u07ff \u0800\ud7ff \ue000\uffff \U00010000\U0010ffff".encode()
"""The first and the last character of each length in UTF-8, and those beside the surrogates."""


@pytest.mark.parametrize(
    ("url", "written"),
    [
        (b"", b""),
        (b"a|b", b"a%7Cb"),
        (b"\x00\x1f\x20\x7f\t\r\n", b"%00%1F %7F%09%0D%0A"),
        (b"%7C%", b"%7C%"),
        ("é中😀".encode(), "é中😀".encode()),
        (("x" * 40 + "中" * 40).encode(), ("x" * 40 + "中" * 40).encode()),
        ("广州".encode("gbk"), b"%B9%E3%D6%DD"),
        (b"\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80\xe4\xb8", b"%C0%80%ED%A0%80%F4%90%80%80%E4%B8"),
        (FIRST_AND_LAST, FIRST_AND_LAST),
        (b"\xc1\xbf\xe0\x9f\xbf\xf0\x8f\xbf\xbf\xf5\x80\x80\x80", b"%C1%BF%E0%9F%BF%F0%8F%BF%BF%F5%80%80%80"),
        (b"\xe4\xb8|\xad", b"%E4%B8%7C%AD"),
        (b"a" * 31 + b"\xff" + b"b" * 33 + b"|", b"a" * 31 + b"%FF" + b"b" * 33 + b"%7C"),
    ],
)
def test_the_url_is_escaped(idc: IdcAccessLog, line: Line, url: bytes, written: bytes) -> None:
    """Bytes that would break the output are percent-encoded in upper case; all others are unchanged."""
    assert CLEAN + written == outcome(idc, line(url=url))


@pytest.mark.parametrize("houseid", [b"2|8", b"2\x008", b"2\x7f", b"\xb9\xe3", b"x" * 70 + b"|"])
def test_the_houseid_is_not_escaped(idc: IdcAccessLog, line: Line, houseid: bytes) -> None:
    """A line is rejected if its houseid contains a character that would break the output."""
    assert reason(idc, line(houseid=houseid)) == "illegal_character"
    assert outcome(idc, line(houseid="é中".encode())) == CLEAN.replace(b"238", "é中".encode()) + URL


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"srcport": b"70000"}, "srcport is '70000', not a port (0 to 65535)"),
        ({"srcip": b"a\x00'\xff"}, 'srcip is "a\\x00\'\\xff", not an IPv4 or IPv6 address'),
        ({"houseid": b" "}, "houseid is empty"),
        ({"gathertime": b"2" * 99}, f"gathertime is '{'2' * 59}…', not a date and time (14 digits: YYYYMMDDhhmmss)"),
        ({"houseid": b"a|"}, "houseid is 'a|', which contains a character that would break the output"),
    ],
)
def test_the_detail_is_safe_to_print(idc: IdcAccessLog, line: Line, changes: dict[str, bytes], detail: str) -> None:
    """The detail names the field and shows its value, quoted and cut, but never the whole line."""
    found = outcome(idc, line(**changes))

    assert detail == found[1]


@settings(max_examples=93, deadline=None)
@given(lines=st.lists(st.none() | st.binary(max_size=80) | st.text(alphabet="<!>,\n\r ", max_size=90).map(str.encode)))
def test_any_bytes_have_one_outcome(lines: list[bytes | None]) -> None:
    """Whatever the bytes, each line is a value or a reject with one of the known reasons."""
    found = outcomes(COMPILED.parse(batch(lines)), len(lines))

    assert len(lines) == len(found)
    assert all(isinstance(one, bytes) or one[0] in REASONS for one in found)


@settings(max_examples=187, deadline=None)
@given(url=st.binary(max_size=120) | st.text(max_size=80).map(str.encode))
@example(url=b"%7C|%")
def test_the_output_splits_and_can_be_undone(line: Line, url: bytes) -> None:
    """An accepted line is one line of UTF-8 with four separators, and unescaping it restores the url."""
    found = outcome(COMPILED, line(url=url))
    if b"<<<!>>>,<<<!>>>" in b"<<<!>>>" + url + b"<<<!>>>":
        return

    assert isinstance(found, bytes)
    assert found.count(b"|") == 4
    assert all(char >= " " and char != "\x7f" for char in found.decode())
    assert url == undone(found.split(b"|")[4], url)


def undone(written: bytes, url: bytes) -> bytes:
    """Undo exactly the escapes that were made, by comparing with the original."""
    made, back = 0, b""
    while made < len(written):
        if written[made : made + 1] == b"%" and url[len(back) : len(back) + 1] != b"%":
            back += bytes.fromhex(written[made + 1 : made + 3].decode())
            made += 3
        else:
            back += written[made : made + 1]
            made += 1
    return back


def test_text_and_large_arrays_are_taken(idc: IdcAccessLog, line: Line) -> None:
    """Text, large and chunked arrays are parsed like binary arrays."""
    for array in (
        pa.array([line().decode()]),
        pa.array([line()], pa.large_binary()),
        pa.chunked_array([[line()], []], pa.binary()),
    ):
        assert CLEAN + URL == outcomes(idc.parse(array), 1)[0]


def test_output_that_outgrows_its_input(idc: IdcAccessLog, line: Line) -> None:
    """Urls with every byte escaped fit into the output, although it is larger than the input."""
    one_large = 2**22 if idc.engine == "compiled" else 2**12  # plain Python has no output buffer to outgrow
    for size, count in ((5000, 50), (one_large, 1)):
        lines = [line(), *[line(url=b"\xff" * size)] * count, line()]

        found = outcomes(idc.parse(batch(lines)), len(lines))

        assert found == [CLEAN + URL, *[CLEAN + b"%FF" * size] * count, CLEAN + URL]


def test_the_bytes_under_a_null_do_not_count(idc: IdcAccessLog, line: Line) -> None:
    """A null is empty even if its place in the buffer still contains a line."""
    whole = batch([line(), line()])
    holed = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), *whole.buffers()[1:]])

    assert [("empty", "the record has no value"), CLEAN + URL] == outcomes(idc.parse(holed), 2)
