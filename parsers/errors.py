"""
What can be wrong with the `parser` section of a configuration; raised where a parser is built, never for data.

ValueError
 ├── UnknownParser       no parser of that name, or what is registered under it cannot be used
 └── ParserOptionError   the parser exists, but not with these options
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UnknownParser(ValueError):
    """No usable parser is registered under that name."""


class ParserOptionError(ValueError):
    """An option of the parser is unknown, missing or wrong; the message names every problem found."""


def listed(problems: Iterable[str]) -> str:
    """Write the problems as one message, one line each where there are several."""
    found = list(problems)
    return found[0] if len(found) == 1 else "".join(f"\n  - {problem}" for problem in found)


def hint(wrong: str, known: Iterable[str]) -> str:
    """Name the nearest known name, or else all of them."""
    names = sorted(str(name) for name in known)
    nearest = get_close_matches(wrong, names, n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(names) or 'none'}"
