"""The rules that the parser, the filters and the offset stores exist, take their options, and suit each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.config import Filter, Rule, Tree
from app.config.secrets import DECLARED
from app.config.sources import Keys, origin_of
from app.model import SOURCE_KEY, Guarantee, Plugin
from app.offsets import registry as stores
from app.offsets.contract import StoreContext, is_local
from app.offsets.failures import UnknownStore
from app.secrets import hidden, without_secrets
from parsers import registry as parsers
from parsers.contract import Parser
from parsers.errors import ParserOptionError, UnknownParser
from parsers.fields.located import pattern_of
from parsers.filters import LineFilter

# Nothing connects while the configuration is read, so no group and cluster are needed.
NOWHERE = StoreContext("none", {"bootstrap.servers": "none"})


def _problems(tree: Tree, place: Keys, plugin: str, problems: Callable[[], list[tuple[str, str]]]) -> Iterator[str]:
    """Yield every problem of a plugin with the line of the option, of the name, or of the section."""
    try:
        found = problems()
    except (UnknownParser, UnknownStore) as error:
        yield _said(tree, (*place, "name"), str(error))
        return
    for option, problem in found:
        yield _said(tree, (*place, option) if option else place, f"{plugin}: {problem}")


def _said(tree: Tree, keys: Keys, problem: str) -> str:
    """Return a problem with the keys that it is about, and where they are written."""
    shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")
    origin = origin_of(keys, tree.origins)
    return f"{shown}: {problem} ({origin})" if origin else f"{shown}: {problem}"


def _parser_fits(tree: Tree, name: str) -> Iterator[str]:
    def problems() -> list[tuple[str, str]]:
        options = _options_of_the_parser(tree)
        # Nobody knows which options of an own parser are secrets, and its errors may quote them.
        secrets = () if name in parsers.PARSERS.built_in else hidden(name, options)
        return [(option, without_secrets(problem, secrets)) for option, problem in parsers.problems(name, options)]

    return _problems(tree, ("parser",), f"parser {name}", problems)


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
            yield _said(tree, ("filter", number), str(error))


def _parser(tree: Tree, name: str) -> Parser | None:
    """Return the parser; None if another rule says why there is none."""
    try:
        return parsers.load(name, _options_of_the_parser(tree))
    except (UnknownParser, ParserOptionError):
        return None


def _options_of_the_parser(tree: Tree) -> dict[str, object]:
    return _options(tree.values.get("parser") or {}, DECLARED)


def _options(written: Mapping[Any, Any], declared: tuple[str, ...] = ("name",)) -> dict[str, object]:
    return {str(key): value for key, value in written.items() if key not in declared}


def _store_fits(tree: Tree, name: str, guarantee: Guarantee) -> Iterator[str]:
    store = _store(tree, name)
    problems = list(_problems_of_a_store(tree, ("offsets", "store"), store))
    yield from problems
    if problems or guarantee is not Guarantee.EXACTLY_ONCE:
        return
    if not stores.open_store(store, NOWHERE).transactional:
        cure = f"set delivery.guarantee to at-least-once, or offsets.store.name to kafka{tree.at('offsets.store.name')}"
        yield f"offsets.store.name is {name}, which cannot join Kafka's transactions: {cure}"


def _mirrors_fit(tree: Tree, store: str, sink_kafka: Mapping[str, str]) -> Iterator[str]:
    """Check each mirror that has a name; other rules refuse the rest. With `sink.kafka`, one more is implied."""
    known = [_store(tree, store), *([Plugin("kafka")] if sink_kafka else [])]
    mirrors = (tree.values.get("offsets") or {}).get("mirrors")
    for number, written in enumerate(mirrors if isinstance(mirrors, list) else ()):
        if isinstance(written, dict) and isinstance(written.get("name"), str):
            mirror, place = Plugin(written["name"], _options(written)), ("offsets", "mirrors", number)
            yield from list(_problems_of_a_store(tree, place, mirror)) or _unsuited(tree, place, mirror, known)
            known.append(mirror)


def _unsuited(tree: Tree, place: Keys, mirror: Plugin, known: list[Plugin]) -> Iterator[str]:
    if is_local(stores.open_store(mirror, NOWHERE)):
        yield _said(tree, place, f"{mirror.name} stores nothing that a tool could read")
    if mirror in known:
        yield _said(tree, place, f"{mirror.name} already holds these offsets; list each store once")


def _problems_of_a_store(tree: Tree, place: Keys, store: Plugin) -> Iterator[str]:
    return _problems(tree, place, f"offset store {store.name}", lambda: stores.problems(store, NOWHERE))


def _store(tree: Tree, name: str) -> Plugin:
    return Plugin(name, _options((tree.values.get("offsets") or {}).get("store") or {}))


PARSER_FITS = Rule(("parser.name",), _parser_fits)
PLUGINS_FIT = (
    PARSER_FITS,
    Rule(("parser.name", "sink.key"), _has_the_key),
    Rule(("parser.name", "filter"), _filters_fit),
    Rule(("offsets.store.name", "delivery.guarantee"), _store_fits),
    Rule(("offsets.store.name", "sink.kafka"), _mirrors_fit),
)
