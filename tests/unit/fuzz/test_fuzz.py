"""What `make fuzz` does for long, for seconds: no input breaks a parser, the configuration, or an offset's metadata."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pyarrow as pa
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parsers.contract import Parsed
from parsers.idc_access_log import IdcAccessLog
from tests.fuzz.configuration import check_configuration
from tests.fuzz.engines import CLEANSED, Disagreement, Pair, access_log
from tests.fuzz.lines import batches, run
from tests.fuzz.offsets import check_metadata
from tests.independent import line
from tests.unit.config.good import TEXT

LINES = 40_000


def test_damaged_lines_have_one_outcome_on_both_engines() -> None:
    """Every reason of the access log occurs among them, and a good part of them is cleansed."""
    outcomes = run(LINES, seed=1)

    assert LINES == outcomes.total()
    assert {*IdcAccessLog().reasons, "envelope"} <= outcomes.keys()
    assert outcomes[CLEANSED] > LINES // 10


def test_a_seed_repeats_a_run() -> None:
    """What was found once can be found again."""
    first, second = ([values for _, values in islice(batches(7), 8)] for _ in range(2))

    assert first == second
    assert first != [values for _, values in islice(batches(8), 8)]


def test_engines_that_differ_are_found() -> None:
    """The error shows the value and both outcomes."""
    lossy = access_log()._replace(compiled=access_log("flume-avro").compiled)

    with pytest.raises(Disagreement, match=r"(?s)b'<<<!>>>3111.*on plain"):
        lossy.outcomes([None, line(1)])


class ForgetfulParser(IdcAccessLog):
    """Loses the last row."""

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """Cleanse all rows but the last."""
        return super().parse(lines[:-1])


def test_a_line_without_an_outcome_is_found() -> None:
    """Also where both engines lose the same line."""
    with pytest.raises(Disagreement):
        Pair.of(ForgetfulParser).outcomes([line(1), line(2)])


def test_the_same_on_both_engines_is_counted() -> None:
    """Each value counts once."""
    assert Counter({CLEANSED: 1, "empty": 2, "no_marker": 1}) == access_log().outcomes([line(1), b"", None, b"x"])


KEYS = st.sampled_from(
    [
        "group.id",
        "source",
        "topics",
        "format",
        "sink",
        "topic",
        "kafka",
        "bootstrap.servers",
        "parser",
        "name",
        "options",
    ]
) | st.text(max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.binary(max_size=6) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.integers(), inner, max_size=4),
    max_leaves=8,
)
GOOD = yaml.safe_load(TEXT)


@settings(max_examples=150)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_configuration_is_read_or_told_what_is_wrong(changes: dict[object, object]) -> None:
    """Keys of any name with values of any type, in place of a part of a good file."""
    check_configuration(yaml.dump(GOOD | changes, allow_unicode=True).encode("utf-8", "surrogatepass"))


@settings(max_examples=150)
@given(st.binary(max_size=80), st.integers(0, len(TEXT)), st.integers(0, 20))
def test_any_bytes_are_read_or_told_what_is_wrong(piece: bytes, at: int, cut: int) -> None:
    """Any bytes, and a good file with any bytes in the middle."""
    check_configuration(piece)
    check_configuration(TEXT.encode()[:at] + piece + TEXT.encode()[at + cut :])


def test_a_good_configuration_is_one() -> None:
    """So it is not an error that answers everything."""
    assert check_configuration(TEXT.encode())


WORDS = st.sampled_from(
    ["topic", "since", "in", "out", "dead", "ib", "ob", "tx", "backlog", "read", "by", "sink", "gen", "task"]
)
SAID = st.text(max_size=8) | st.sampled_from(
    [
        "5",
        "-1",
        "9" * 30,
        "e:x",
        "e:3,nm:1",
        "~x:1",
        "~%20:2",
        "1:2",
        "1:2:3",
        "9@2",
        "@",
        "h%41@5",
        "%",
        "²",
        "12.3.0;1;2;3:0,1",
    ]
)


@example("winnow/2", [("dead", "e:x")])
@given(st.sampled_from(["winnow", "winnow/2"]), st.lists(st.tuples(WORDS, SAID)))
def test_any_metadata_is_read_and_written_again(version: str, words: list[tuple[str, str]]) -> None:
    """Whatever stands beside an offset under our name, a task can go on with it."""
    check_metadata(" ".join([version, *(f"{name}={value}" for name, value in words)]))
