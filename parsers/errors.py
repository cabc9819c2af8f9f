"""
The errors in the `parser` section of a configuration. They are raised when a parser is built, never for data.

ValueError
 ├── UnknownParser       there is no parser of that name, or the one that is registered cannot be used
 └── ParserOptionError   the parser does not accept its options
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UnknownParser(ValueError):
    """No usable parser is registered under that name."""


class ParserOptionError(ValueError):
    """An option of the parser is unknown, missing or wrong; the message names every problem found."""


def listed(problems: Iterable[str]) -> str:
    """Return one message for all problems, which must be at least one: a line for each if there are several."""
    found = list(problems)
    return found[0] if len(found) == 1 else "".join(f"\n  - {problem}" for problem in found)


def hint(wrong: str, known: Iterable[str]) -> str:
    """Return a question that names the known name nearest to the wrong one, or else a list of all known names."""
    names = sorted(str(name) for name in known)
    nearest = get_close_matches(wrong, names, n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(names) or 'none'}"
