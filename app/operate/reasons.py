"""Doubts about the reasons that an operator asks for."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from parsers.contract import Parser


def doubts(asked: Collection[str], parser: Parser, others: Collection[str]) -> list[str]:
    """
    Return a question for each reason that is nearly one of this configuration's, and perhaps misspelt.

    It may also be right: dead letters may be of another parser, or of another version of it.

    Args:
        others: the reasons that no parser gives.
    """
    known = dict.fromkeys([*getattr(parser, "reasons", ()), *others])
    unknown = [each for each in asked if each not in known]
    near = {each: get_close_matches(each, known, n=1) for each in unknown}
    return [
        f"--reason {each}: this configuration gives no such reason; did you mean {names[0]}?"
        for each, names in near.items()
        if names
    ]
