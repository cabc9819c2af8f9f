"""Doubts about the reasons that an operator asks for."""

from __future__ import annotations

from collections.abc import Collection

from parsers.contract import Parser
from parsers.errors import nearest


def doubts(asked: Collection[str], parser: Parser, others: Collection[str]) -> list[str]:
    """
    Return a question for each reason that is nearly one of this configuration's, and perhaps misspelt.

    It may also be right: dead letters may be of another parser, or of another version of it.

    Args:
        others: the reasons that no parser gives.
    """
    known = dict.fromkeys([*getattr(parser, "reasons", ()), *others])
    near = {each: nearest(each, known) for each in asked if each not in known}
    return [
        f"--reason {each}: this configuration gives no such reason; did you mean {name}?"
        for each, name in near.items()
        if name
    ]
