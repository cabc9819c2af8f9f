"""The rules that the parser exists and takes its options, and that filters fit its lines."""

from __future__ import annotations

from collections.abc import Iterator

from app.config import Filter, Rule, Tree
from app.config.secrets import DECLARED
from parsers import registry
from parsers.errors import ParserOptionError
from parsers.filters import LineFilter

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


def _filters_fit(tree: Tree, name: str, filters: tuple[Filter, ...]) -> Iterator[str]:
    """Yield each filter that looks at a field which the lines lack, or has a wrong check."""
    if not filters:
        return
    try:
        parser = registry.load(name, _options(tree))
    except (registry.UnknownParser, ParserOptionError):  # the other rule says so
        return
    for number, each in enumerate(filters):
        try:
            LineFilter(parser, each.rule.field, each.rule.check, keeps=each.rule.keeps)
        except ParserOptionError as error:
            yield f"filter[{number}]: {error}{tree.at('filter')}"


def _options(tree: Tree) -> dict[str, object]:
    written = tree.values.get(SECTION) or {}
    return {str(key): value for key, value in written.items() if key not in DECLARED}


PARSER_FITS = Rule((f"{SECTION}.name",), _fits)
FILTERS_FIT = Rule((f"{SECTION}.name", "filter"), _filters_fit)
