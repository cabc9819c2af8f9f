"""
Turns a regular expression into an automaton, if each byte of a line decides how the match goes on.

RE2 calls such an expression one-pass. The kernel `groups` finds its groups in less than half of the time that RE2
needs. An expression must be anchored with `^` and `$`; any other construct than bytes, classes, groups, alternatives
and repetitions makes RE2 do the work. Python's parser reads the expression, which RE2 has accepted before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_ALL = (1 << 256) - 1
_DIGITS = sum(1 << byte for byte in b"0123456789")
_WORDS = _DIGITS | sum(1 << byte for byte in b"_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_SPACES = sum(1 << byte for byte in b"\t\n\f\r ")  # unlike Python's, RE2's \s has no vertical tab
_CATEGORIES = {
    sre.CATEGORY_DIGIT: _DIGITS,
    sre.CATEGORY_NOT_DIGIT: _ALL & ~_DIGITS,
    sre.CATEGORY_WORD: _WORDS,
    sre.CATEGORY_NOT_WORD: _ALL & ~_WORDS,
    sre.CATEGORY_SPACE: _SPACES,
    sre.CATEGORY_NOT_SPACE: _ALL & ~_SPACES,
}
_MOST_NODES = 2_000
_MOST_GROUPS = 31
"""Each has two bits in the marks of a step, which are 63 bits."""
# Python reads these otherwise than RE2: a POSIX class, and a repetition without a lower bound or with a leading zero.
_OTHERWISE = re.compile(r"\[\[?:|\{,|\{(?:[0-9]+,)?0[0-9]")


class Automaton(NamedTuple):
    """
    The steps of a match. State 0 is the first one.

    Args:
        steps: for each state and byte, twice the next state, plus 1 if a group begins or ends before the byte; or -1.
        marks: for each state and byte, bit 2n is set if group n begins before the byte, bit 2n+1 if it ends there.
        ends: for each state, the same marks if a line may end in it, or -1.
    """

    steps: NDArray[np.int32]
    marks: NDArray[np.int64]
    ends: NDArray[np.int64]


def automaton(pattern: str, groups: Sequence[str]) -> Automaton | None:
    """Return an automaton that finds these groups, or None if the pattern needs RE2."""
    if _OTHERWISE.search(pattern) or len(groups) > _MOST_GROUPS:
        return None
    try:
        return _Nodes(pattern, groups).automaton()
    except (_NotOnePass, re.error, OverflowError):
        return None


class _NotOnePass(Exception):
    """A byte can go on in two ways, or the expression has a construct that is not known here."""


class _Node(NamedTuple):
    """A byte out of `bytes`, the beginning or end of a group (`mark`, a bit), or the choice between its successors."""

    bytes: int
    mark: int
    after: list[int]


_MATCH = 0


class _Nodes:
    """The expression as nodes, each built after those that follow it. Node 0 is the end of the line."""

    def __init__(self, pattern: str, groups: Sequence[str]) -> None:
        written, named = re.subn(r"\(\?P?<", "(?P<", pattern)
        parsed = parser.parse(written.encode())
        items = list(parsed)
        whole = [(sre.AT, sre.AT_BEGINNING), (sre.AT, sre.AT_END)]
        # A text like a group's can be part of a class or follow a backslash.
        is_text = named != len(parsed.state.groupdict)
        if items[:1] + items[-1:] != whole or parsed.state.flags & ~re.DOTALL or is_text:
            raise _NotOnePass
        self._numbers: Mapping[int, int] = {parsed.state.groupdict[name]: n for n, name in enumerate(groups)}
        self._nodes = [_Node(0, 0, [])]
        self._first = self._sequence(items[1:-1], _MATCH, dot_all=bool(parsed.state.flags & re.DOTALL))

    def _add(self, found: int = 0, mark: int = 0, after: Sequence[int] = ()) -> int:
        if len(self._nodes) == _MOST_NODES:
            raise _NotOnePass
        self._nodes.append(_Node(found, mark, [*after]))
        return len(self._nodes) - 1

    def _sequence(self, items: Sequence[Any], after: int, *, dot_all: bool) -> int:
        for kind, detail in reversed(items):
            after = self._item(kind, detail, after, dot_all=dot_all)
        return after

    def _item(self, kind: Any, detail: Any, after: int, *, dot_all: bool) -> int:  # noqa: ANN401  # of Python's parser
        match kind:
            case sre.LITERAL | sre.NOT_LITERAL | sre.ANY | sre.IN:
                if found := _bytes(kind, detail, dot_all=dot_all):
                    return self._add(found, after=[after])
            case sre.SUBPATTERN:
                number, on, off, inner = detail
                return self._group(number, on, off, inner, after, dot_all=dot_all)
            case sre.BRANCH:
                return self._add(after=[self._sequence(each, after, dot_all=dot_all) for each in detail[1]])
            case sre.MAX_REPEAT | sre.MIN_REPEAT:
                least, most, inner = detail
                return self._repeat(least, most, inner, after, dot_all=dot_all)
        raise _NotOnePass

    def _group(self, number: int | None, on: int, off: int, items: Any, after: int, *, dot_all: bool) -> int:  # noqa: ANN401
        if (on | off) & ~re.DOTALL:
            raise _NotOnePass
        dot_all = (dot_all or bool(on)) and not off
        if number is None or number not in self._numbers:
            return self._sequence(items, after, dot_all=dot_all)
        begins, ends = (1 << 2 * self._numbers[number] + side for side in (0, 1))
        inside = self._sequence(items, self._add(mark=ends, after=[after]), dot_all=dot_all)
        return self._add(mark=begins, after=[inside])

    def _repeat(self, least: int, most: Any, items: Any, after: int, *, dot_all: bool) -> int:  # noqa: ANN401
        if most is sre.MAXREPEAT:
            again = self._add()
            self._nodes[again].after.extend([self._sequence(items, again, dot_all=dot_all), after])
            after = again
        else:
            end = after
            for _ in range(most - least):
                after = self._add(after=[self._sequence(items, after, dot_all=dot_all), end])
        for _ in range(least):
            after = self._sequence(items, after, dot_all=dot_all)
        return after

    def automaton(self) -> Automaton:
        order, steps, marks, ends = [self._first], list[Any](), list[Any](), list[int]()
        numbers = {self._first: 0}
        for state in order:  # which grows
            step, mark, end = np.full(256, -1, np.int32), np.zeros(256, np.int64), -1
            taken = 0
            for node, passed in self._reached(state):
                if node == _MATCH:
                    end = passed
                    continue
                found, after = self._nodes[node].bytes, self._nodes[node].after[0]
                if found & taken:
                    raise _NotOnePass
                taken |= found
                places = [byte for byte in range(256) if found >> byte & 1]
                number = numbers.setdefault(after, len(order))
                if number == len(order):
                    order.append(after)
                step[places] = 2 * number + (passed != 0)
                mark[places] = passed
            steps.append(step)
            marks.append(mark)
            ends.append(end)
        return Automaton(np.array(steps), np.array(marks), np.array(ends, np.int64))

    def _reached(self, state: int) -> Iterator[tuple[int, int]]:
        """Yield the nodes that take a byte from this one on, and the end of the line, each with the marks before it."""
        waiting, seen = [(state, 0)], set[int]()
        while waiting:
            at, passed = waiting.pop()
            if at in seen:
                raise _NotOnePass
            seen.add(at)
            node = self._nodes[at]
            if at == _MATCH or node.bytes:
                yield at, passed
            else:
                waiting += [(after, passed | node.mark) for after in node.after]


def _bytes(kind: Any, detail: Any, *, dot_all: bool) -> int:  # noqa: ANN401  # of Python's parser
    """Return a set of bytes as bits."""
    match kind:
        case sre.LITERAL:
            return 1 << int(detail)
        case sre.NOT_LITERAL:
            return _ALL & ~(1 << int(detail))
        case sre.ANY:
            return _ALL if dot_all else _ALL & ~(1 << 10)
        case sre.RANGE:
            return sum(1 << byte for byte in range(detail[0], detail[1] + 1))
        case sre.CATEGORY:
            return _CATEGORIES[detail]
    is_negated = detail[:1] == [(sre.NEGATE, None)]
    found = 0
    for each in detail[is_negated:]:
        found |= _bytes(*each, dot_all=dot_all)
    return _ALL & ~found if is_negated else found
