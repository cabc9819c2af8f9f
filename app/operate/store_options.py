"""The rules that offset stores exist, take their options and suit their role, for the reader of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.config import Rule, Tree
from app.config.sources import Keys, origin_of
from app.model import Guarantee, Plugin
from app.offsets import registry
from app.offsets.contract import StoreContext, is_local
from app.offsets.failures import UnknownStore

STORE, MIRRORS = ("offsets", "store"), ("offsets", "mirrors")
# Nothing connects while the configuration is read, so no group and cluster are needed.
NOWHERE = StoreContext("none", {"bootstrap.servers": "none"})


def _store_fits(tree: Tree, name: str, guarantee: Guarantee) -> Iterator[str]:
    store = _store(tree, name)
    problems = list(_problems(tree, STORE, store))
    yield from problems
    if problems or guarantee is not Guarantee.EXACTLY_ONCE:
        return
    if not registry.open_store(store, NOWHERE).transactional:
        where = tree.at("offsets.store.name")
        yield (
            f"offsets.store.name is {name}, which cannot join Kafka's transactions: "
            f"set delivery.guarantee to at-least-once, or offsets.store.name to kafka{where}"
        )


def _mirrors_fit(tree: Tree, store: str) -> Iterator[str]:
    """Check each mirror that has a name; other rules refuse the rest."""
    known = [_store(tree, store)]
    mirrors = (tree.values.get("offsets") or {}).get("mirrors")
    for number, written in enumerate(mirrors if isinstance(mirrors, list) else ()):
        if isinstance(written, dict) and isinstance(written.get("name"), str):
            mirror, place = Plugin(written["name"], _options(written)), (*MIRRORS, number)
            yield from list(_problems(tree, place, mirror)) or _unsuited(tree, place, mirror, known)
            known.append(mirror)


def _unsuited(tree: Tree, place: Keys, mirror: Plugin, known: list[Plugin]) -> Iterator[str]:
    if is_local(registry.open_store(mirror, NOWHERE)):
        yield _said(tree, place, f"{mirror.name} stores nothing that a tool could read")
    if mirror in known:
        yield _said(tree, place, f"{mirror.name} already holds these offsets; list each store once")


def _problems(tree: Tree, place: Keys, store: Plugin) -> Iterator[str]:
    """Yield every problem with the line of the option, of the name, or of the section."""
    try:
        problems = registry.problems(store, NOWHERE)
    except UnknownStore as error:
        yield _said(tree, (*place, "name"), str(error))
        return
    for option, problem in problems:
        at = (*place, option) if option else place
        yield _said(tree, at, f"offset store {store.name}: {problem}")


def _store(tree: Tree, name: str) -> Plugin:
    return Plugin(name, _options((tree.values.get("offsets") or {}).get("store") or {}))


def _options(written: Mapping[Any, Any]) -> dict[str, object]:
    return {str(key): value for key, value in written.items() if key != "name"}


def _said(tree: Tree, keys: Keys, problem: str) -> str:
    """Return a problem with the keys that it is about, and where they are written."""
    shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")
    origin = origin_of(keys, tree.origins)
    return f"{shown}: {problem} ({origin})" if origin else f"{shown}: {problem}"


STORES_FIT = (
    Rule(("offsets.store.name", "delivery.guarantee"), _store_fits),
    Rule(("offsets.store.name",), _mirrors_fit),
)
