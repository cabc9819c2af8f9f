"""The parsers that can be chosen, for `winnow parsers`."""

from __future__ import annotations

from typing import Any, NamedTuple

from parsers import registry
from parsers.descriptions import Description


class ParserEntry(NamedTuple):
    """A parser; without a description, `problem` says why it cannot be used."""

    name: str
    description: Description | None
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        described = self.description
        return {
            "name": self.name,
            "summary": described and described.summary,
            "options": [each._asdict() for each in described.options] if described else [],
            "example": (described and described.example) or None,
            "problem": self.problem or None,
        }


def catalogue(name: str | None) -> list[ParserEntry]:
    """Return all parsers, or the one of that name. Raises UnknownParser if there is none."""
    if name is not None:
        return [ParserEntry(name, registry.describe(name))]
    return [_entry(each) for each in registry.names()]


def _entry(name: str) -> ParserEntry:
    """Describe a parser; one of another package that is broken must not hide the others."""
    try:
        return ParserEntry(name, registry.describe(name))
    except registry.UnknownParser as error:
        return ParserEntry(name, None, str(error))
