"""Between a user's parser and the record flow: whatever the parser returns, each record is a line or a dead letter."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from app.executor.parse import PARSER_ERROR, parse
from parsers.idc_access_log import IdcAccessLog
from parsers.testing import outcomes
from tests.fakes.parsers import WRONG, Wrong
from tests.independent import cleansed, line

LINES = pa.array([line(0), b"rubbish", line(1)], pa.binary())
KEYS = pa.array([None] * 3, pa.binary())
ROOMY = 1_000_000


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_outcome_is_never_a_line(what: str) -> None:
    """Wrong types, nulls and layouts become dead letters; the backends read these arrays by their layout."""
    parsed = parse(Wrong(WRONG[what]), LINES, KEYS, ROOMY)

    values, rejected = {cleansed(0), cleansed(1)}, {"no_marker", PARSER_ERROR}
    for outcome in outcomes(parsed, len(LINES)):
        assert outcome in values if isinstance(outcome, bytes) else outcome[0] in rejected
    # A single row has no gaps in memory: asked row by row, that parser is right.
    assert (PARSER_ERROR in parsed.reasons.to_pylist()) == (what != "rows with gaps in memory")
    assert (pa.binary(), 0) == (parsed.values.type, parsed.values.null_count)
    assert parsed.rows.dtype == np.int32


@pytest.mark.parametrize(
    ("what", "detail"),
    [
        ("values with 64-bit offsets", "values is large_binary, not an Arrow array of binary"),
        ("rows of 64 bits", "rows is int64, not a one-dimensional array of int32"),
        ("a null among the values", "values holds 1 nulls"),
        ("rows that are a list", "rows is list, not a one-dimensional array of int32"),
    ],
)
def test_the_dead_letter_says_what_is_wrong(what: str, detail: str) -> None:
    """Whoever wrote the parser finds the breach in the message of the dead letter."""
    parsed = parse(Wrong(WRONG[what]), LINES, KEYS, ROOMY)

    assert any(f"the parser broke its contract: {detail}" in each for each in parsed.details.to_pylist())


def test_a_right_outcome_is_handed_on() -> None:
    """Nothing is copied or asked for twice."""
    parsed = parse(IdcAccessLog(), LINES, KEYS, ROOMY)

    assert [cleansed(0), cleansed(1)] == parsed.values.to_pylist()
    assert ["no_marker"] == parsed.reasons.to_pylist()
