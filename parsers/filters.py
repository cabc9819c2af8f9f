"""Filters: cleansed lines that are dropped on purpose, by the text of one of their fields."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parsers.contract import Parser
from parsers.errors import ParserOptionError, hint
from parsers.fields.checks import TESTS, Network, Test, check_of
from parsers.fields.located import cut, pattern_of


class LineFilter:
    """
    Decides which lines to drop.

    Args:
        field: a field of the parser's output. A line without it does not pass.
        check: a check with its parameter, such as `{matches: ^/health}`; see `parsers.fields.checks`.
        keeps: whether to drop the lines that do not pass; otherwise those that pass.

    Raises:
        ParserOptionError: the parser's lines have no such field, or there is no such check.
    """

    def __init__(self, parser: Parser, field: str, check: Mapping[str, object], *, keeps: bool) -> None:
        self._pattern = pattern_of(parser, field)
        self._test = _test(check)
        self._keeps = keeps

    def drops(self, lines: pa.BinaryArray) -> NDArray[np.bool_]:
        found = cut(lines, self._pattern)
        # A text has an IPv6 address in brackets.
        if isinstance(self._test, Network) and pc.any(pc.starts_with(found, "[")).as_py():
            found = pc.replace_substring_regex(found, r"\A\[([^\]]*)\]\z", r"\1")
        passes: NDArray[np.bool_] = pc.and_(found.is_valid(), self._test.accepted(found.fill_null(b""))).to_numpy(
            zero_copy_only=False
        )
        return ~passes if self._keeps else passes


def _test(check: Mapping[str, object]) -> Test:
    if len(check) != 1:
        raise ParserOptionError(f"write one check for the field: {', '.join(TESTS)}")
    (name,) = check
    if name not in TESTS:
        raise ParserOptionError(f"no check {name!r} for a filter; {hint(name, TESTS)}")
    test = check_of(check)
    assert not isinstance(test, str)  # its name is in TESTS
    return test
