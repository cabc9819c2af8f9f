"""The rules that the parser exists, takes its options and has the key, for the reader of the configuration."""

from __future__ import annotations

from collections.abc import Iterator

from app.config import Rule, Tree
from app.config.secrets import DECLARED
from app.model import SOURCE_KEY
from parsers import registry
from parsers.keys import pattern_of

SECTION = "parser"


def _fits(tree: Tree, name: str) -> Iterator[str]:
    """Yield every problem with the line of the option, of the name, or of the section."""
    try:
        problems = registry.problems(name, _options(tree))
    except registry.UnknownParser as error:
        yield f"{SECTION}.name: {error}{tree.at(f'{SECTION}.name')}"
        return
    for option, problem in problems:
        place = f"{SECTION}.{option}" if option else SECTION
        yield f"{place}: parser {name}: {problem}{tree.at(place)}"


def _has_the_key(tree: Tree, name: str, key: str) -> Iterator[str]:
    if key == SOURCE_KEY:
        return
    try:
        parser = registry.load(name, _options(tree))
    except (registry.UnknownParser, registry.ParserOptionError):  # the other rule says why
        return
    try:
        pattern_of(parser, key)
    except registry.ParserOptionError as error:
        yield f"sink.key: {error}{tree.at('sink.key')}"


def _options(tree: Tree) -> dict[str, object]:
    written = tree.values.get(SECTION) or {}
    return {str(key): value for key, value in written.items() if key not in DECLARED}


PARSER_FITS = Rule((f"{SECTION}.name",), _fits)
KEY_FITS = Rule((f"{SECTION}.name", "sink.key"), _has_the_key)
