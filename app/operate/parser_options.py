"""The rules that the parser exists and takes its options, and that its lines have the key and the fields of filters."""

from __future__ import annotations

from collections.abc import Iterator

from app.config import Filter, Rule, Tree
from app.config.secrets import DECLARED
from app.config.sources import origin_of
from app.model import SOURCE_KEY
from parsers import registry
from parsers.contract import Parser
from parsers.errors import ParserOptionError
from parsers.filters import LineFilter
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
    if key == SOURCE_KEY or (parser := _parser(tree, name)) is None:
        return
    try:
        pattern_of(parser, key)
    except ParserOptionError as error:
        yield f"sink.key: {error}{tree.at('sink.key')}"


def _filters_fit(tree: Tree, name: str, filters: tuple[Filter, ...]) -> Iterator[str]:
    """Yield each filter that looks at a field which the lines lack, or has a wrong check."""
    if not filters or (parser := _parser(tree, name)) is None:
        return
    for number, each in enumerate(filters):
        try:
            LineFilter(parser, each.rule.field, each.rule.check, keeps=each.rule.keeps)
        except ParserOptionError as error:
            yield f"filter[{number}]: {error} ({origin_of(('filter', number), tree.origins)})"


def _parser(tree: Tree, name: str) -> Parser | None:
    """Return the parser; None if another rule says why there is none."""
    try:
        return registry.load(name, _options(tree))
    except (registry.UnknownParser, ParserOptionError):
        return None


def _options(tree: Tree) -> dict[str, object]:
    written = tree.values.get(SECTION) or {}
    return {str(key): value for key, value in written.items() if key not in DECLARED}


PARSER_FITS = Rule((f"{SECTION}.name",), _fits)
FILTERS_FIT = Rule((f"{SECTION}.name", "filter"), _filters_fit)
KEY_FITS = Rule((f"{SECTION}.name", "sink.key"), _has_the_key)
