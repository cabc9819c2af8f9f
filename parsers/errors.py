"""The errors in the `parser` section of a configuration, raised when a parser is built, never because of data."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UnknownParser(ValueError):
    """No usable parser has that name."""


class ParserOptionError(ValueError):
    """An option of the parser is unknown, missing or wrong; the message names every problem."""


def listed(problems: Iterable[str]) -> str:
    """Return one message for at least one problem, with a line for each if there are several."""
    found = list(problems)
    return found[0] if len(found) == 1 else "".join(f"\n  - {problem}" for problem in found)


def unlisted(message: str) -> list[str]:
    """Return the problems of a message that `listed` may have made."""
    return [line.strip().removeprefix("- ") for line in message.splitlines() if line.strip()]


def hint(wrong: str, known: Iterable[str]) -> str:
    """Suggest the nearest known name, or list all known names if none is near."""
    names = sorted(str(name) for name in known)
    near = nearest(wrong, names)
    return f"did you mean {near!r}?" if near else f"known: {', '.join(names) or 'none'}"


def nearest(wrong: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the nearest known name; empty if none is as similar as `cutoff`."""
    return next(iter(get_close_matches(wrong, list(known), n=1, cutoff=cutoff)), "")
