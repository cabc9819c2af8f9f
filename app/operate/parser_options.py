"""The rule that the parser exists and takes its options, for the reader of the configuration."""

from __future__ import annotations

from collections.abc import Iterator

from app.config import Rule, Tree
from app.config.secrets import DECLARED
from parsers import registry

SECTION = "parser"


def _fits(tree: Tree, name: str) -> Iterator[str]:
    """Yield every problem with the line of the option, of the name, or of the section."""
    written = tree.values.get(SECTION) or {}
    options = {str(key): value for key, value in written.items() if key not in DECLARED}
    try:
        problems = registry.problems(name, options)
    except registry.UnknownParser as error:
        yield f"{SECTION}.name: {error}{tree.at(f'{SECTION}.name')}"
        return
    for option, problem in problems:
        place = f"{SECTION}.{option}" if option else SECTION
        yield f"{place}: parser {name}: {problem}{tree.at(place)}"


PARSER_FITS = Rule((f"{SECTION}.name",), _fits)
