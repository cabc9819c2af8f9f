"""Raw lines that must be rejected, each with its expected reason, for the demo and the tests."""

from __future__ import annotations

import random
from collections.abc import Callable

from app.demo.vocabulary import DESTIP, DESTPORT, GATHERTIME, HOUSEID, MARK, SEPARATOR, SRCIP, SRCPORT, join, with_end

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
"""For each reason, in order of precedence: the field and its invalid values."""


def make_fault(fields: list[bytes], dice: random.Random) -> tuple[bytes | None, str]:
    """Return a line that must be rejected, and the reason."""
    reason = dice.choice(("empty", "no_marker", "field_count", *FIELD_FAULTS))
    if reason in FIELD_FAULTS:
        return with_end(join(_with_faults(fields, reason, dice)), dice), reason
    whole: dict[str, Callable[[list[bytes], random.Random], bytes | None]] = {
        "empty": lambda _, dice: dice.choice((None, b"", b"\n", b"\r\n", b"\r")),
        "no_marker": _without_marker,
        "field_count": _with_wrong_count,
    }
    return whole[reason](fields, dice), reason


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
    others = (
        b",".join(fields)[:300] + b".",
        b'{"houseid": "238", "url": null}',
        b"- - [12/Nov/2017] GET /",
        b" ",
        b"\x00",
    )
    return dice.choice(cuts + others)


def _with_wrong_count(fields: list[bytes], dice: random.Random) -> bytes:
    """Return a line with markers but without exactly 15 fields."""
    line = join(fields)
    spaced = line.replace(SEPARATOR, MARK + b", " + MARK, 1)
    wrong = (join(fields[:-1]), join([*fields, b""]), join(fields[:12]), join([b"x"]), line + b"\n" + line, spaced)
    return with_end(dice.choice(wrong), dice)
