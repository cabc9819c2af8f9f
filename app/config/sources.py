"""
Gathers the file, the environment and `--set` into one tree of values with their origins.

The later source wins. Defaults of an image (`WINNOW_DEFAULT__HTTP__ADDRESS`) come before them all. Values are not
checked here, only that each source can be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from app.config.model import is_property, is_value, path_of, placed
from app.errors import ConfigError
from app.secrets import KAFKA_SECRETS, OPTION_SECRETS

ENV_PREFIX = "WINNOW_"
DEFAULT_PREFIX = "WINNOW_DEFAULT__"
FILE_VARIABLE = "WINNOW_CONFIG"
"""The variable that names the file."""
FILE = Path("winnow.yaml")
"""The file, if nothing names another."""
DEFAULT = "default"

# Words quoted from the file. PyYAML also quotes tokens that it expected or found, `','` or `'<block end>'`: those stay.
_QUOTED_WORDS = re.compile(r"(?<=\s)['\"](?![<,:?\[\]{}-]).*", re.DOTALL)

# PyYAML's words for a tab where only spaces may stand.
_TAB = "found character '\\t' that cannot start any token"

_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"
_DEEPEST_VERBATIM = 5  # parser.checks.FIELD.one-of[0]
_BOOLEAN = "tag:yaml.org,2002:bool"
_NUMBERS_AND_DATES = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp"))

Keys = tuple[Any, ...]
"""A key, preceded by its sections."""

Origins = Mapping[tuple[str, ...], str]
"""Where each section, key and, if known, item of a list was set; unset keys are absent."""


class Entry(NamedTuple):
    """
    A value and its origin: `winnow.yaml:12`, `WINNOW_SINK__TOPIC` or `--set sink.topic`.

    Args:
        within: the origins of the items of a list, and of the keys in them, if they are known.
    """

    keys: Keys
    value: object
    origin: str
    within: Mapping[Keys, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Tree:
    """The values in sections, the origin of each section and key, and the file, if there is one."""

    values: Mapping[Any, Any]
    origins: Origins
    file: Path | None

    @property
    def is_given(self) -> bool:
        """Whether there is a file, or anything but an image's defaults."""
        return self.file is not None or not all(each.startswith(DEFAULT_PREFIX) for each in self.origins.values())

    def has(self, name: str) -> bool:
        return path_of(name) in self.origins

    def at(self, *names: str) -> str:
        """Return the origins of keys as the end of a sentence: ` (winnow.yaml:12 and --set sink.topic)`."""
        origins = dict.fromkeys(self.origins.get(path_of(name), DEFAULT) for name in names)
        return f" ({' and '.join(origins)})"

    def missing(self, name: str) -> str:
        file = self.file or "a file (-c)"
        return f"{name} is missing: set it in {file}, as {variable(path_of(name))}, or with --set {name}=..."


def gather(file: Path | None, assignments: Iterable[str], environ: Mapping[str, str]) -> Tree:
    """Merge all sources. Raises ConfigError if one cannot be read, or has a key in two forms."""
    values: dict[Any, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    written = {
        name: text for name, text in environ.items() if not name.startswith(DEFAULT_PREFIX) and name != FILE_VARIABLE
    }
    defaults = _from_environment(environ, DEFAULT_PREFIX)
    each_once = map(_once, (defaults, _from_file(file), _from_environment(written)))
    for entry in chain(*each_once, _from_assignments(assignments)):
        _put(entry, values, origins)
    return Tree(values, origins, file)


def _once(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Return the entries of a source. Raises ConfigError if one is there twice, with dots and nested."""
    found: dict[Keys, Entry] = {}
    twice = [(before, each) for each in entries if (before := found.setdefault(each.keys, each)) is not each]
    for each in found.values():
        outer = (found.get(each.keys[:depth]) for depth in range(1, len(each.keys)))
        twice += [(before, each) for before in outer if before is not None and before.value not in (None, {})]
    if twice:
        raise ConfigError(tuple(_set_twice(first.keys, first.origin, again.origin) for first, again in twice))
    return found.values()


def _set_twice(keys: Keys, *origins: str) -> str:
    return f"{full_name(keys)} is set twice: keep one ({' and '.join(origins)})"


def _put(entry: Entry, values: dict[Any, Any], origins: dict[tuple[str, ...], str]) -> None:
    """Add a value or replace an earlier one; an empty section removes nothing."""
    *sections, last = entry.keys
    path = named(entry.keys)
    for depth, section in enumerate(sections, 1):
        inner = values.get(section)
        if not isinstance(inner, dict):
            origins[path[:depth]] = entry.origin
        values[section] = dict(inner) if isinstance(inner, dict) else {}  # an alias may stand for one in two places
        values = values[section]
    if entry.value in (None, {}) and isinstance(values.get(last), dict):
        return
    values[last] = entry.value
    for within in [other for other in origins if other[: len(path)] == path]:
        del origins[within]
    origins[path] = entry.origin
    origins |= {(*path, *named(within)): origin for within, origin in entry.within.items()}


def named(keys: Iterable[object]) -> tuple[str, ...]:
    """Return keys as text, because a YAML key may be a number."""
    return tuple(map(str, keys))


def full_name(keys: Keys) -> str:
    return ".".join(named(keys))


def origin_of(keys: Keys, origins: Origins) -> str:
    """Return a value's origin, or that of the closest list or section that has one; empty if none has."""
    path = named(keys)
    return next((origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in origins), "")


def variable(keys: Keys) -> str:
    return ENV_PREFIX + "__".join(str(key).replace(".", "_").upper() for key in keys)


def _from_file(file: Path | None) -> Iterator[Entry]:
    if not file:
        return
    values, lines = _parsed(file)
    for key, value in values.items():
        for keys, leaf in leaves(value, (key,)):
            within = {each[len(keys) :]: f"{file}:{line}" for each, line in lines.items() if each[: len(keys)] == keys}
            yield Entry(placed(keys), leaf, within.pop(()), within)


def _parsed(file: Path) -> tuple[dict[Any, Any], dict[Keys, int]]:
    """Return the values as `yaml.safe_load` reads them, but texts verbatim, and the line of each key."""
    try:
        loader = yaml.SafeLoader(file.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        # Before the values are constructed: that writes merged keys into the sections.
        twice = tuple(_twice(file, node, set()))
        _take_texts_verbatim(node)
        values = loader.construct_document(node) if node else None
        lines = dict(_lines(loader, node))
    except OSError as error:
        raise ConfigError((f"{file}: {error.strerror}",)) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError((_not_yaml(file, error),)) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError((f"{file} is not YAML: {error}",)) from None
    if twice:
        raise ConfigError(twice)
    if not isinstance(values, dict):
        raise ConfigError((f"{file} must contain keys and values, such as `group.id: idc-cleansing`",))
    return values, lines


def _take_texts_verbatim(node: yaml.Node | None, outer: Keys = ()) -> None:
    """Retag as text what YAML reads as another value: the password 012345 as the number 5349."""
    if not isinstance(node, yaml.CollectionNode) or len(outer) >= _DEEPEST_VERBATIM:
        return
    in_section = isinstance(node, yaml.MappingNode)
    for key, value in ((key.value, value) for key, value in node.value) if in_section else enumerate(node.value):
        keys = (*outer, key)
        if _is_text(value, keys):
            value.tag = _TEXT
        _take_texts_verbatim(value, keys)


def _is_text(node: yaml.Node, keys: Keys) -> bool:
    """
    Return whether a value is text whatever YAML takes it for: a number or date of a property or of a store's password,
    or a word of `one-of`.

    Booleans among properties are text only where they are secrets: librdkafka needs `true` where a user writes `yes`.
    """
    if keys[-2:-1] == ("one-of",):
        return isinstance(node, yaml.ScalarNode) and node.value != ""
    path = placed(keys)
    of_a_store = _is_secret_of_a_store(path)
    of_a_secret = of_a_store or str(path[-1]) in KAFKA_SECRETS
    is_verbatim = of_a_store or is_property(path)
    return is_verbatim and (node.tag in _NUMBERS_AND_DATES or (of_a_secret and node.tag == _BOOLEAN))


def _is_secret_of_a_store(path: Keys) -> bool:
    return path[0] == "offsets" and str(path[-1]) in OPTION_SECRETS


def _not_yaml(file: Path, error: yaml.MarkedYAMLError) -> str:
    """Say where and why a file is not YAML, without the words that PyYAML quotes from it, which may be secret."""
    line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
    if error.problem == _TAB:
        return f"{file}{line} is not YAML: there is a tab, where YAML allows only spaces: replace it"
    problem = _QUOTED_WORDS.sub("...", error.problem or "")
    return f"{file}{line} is not YAML: {problem}"


def _lines(
    loader: yaml.SafeLoader, node: yaml.Node | None, keys: Keys = (), outer: tuple[yaml.Node, ...] = ()
) -> Iterator[tuple[Keys, int]]:
    if node in outer:
        raise yaml.YAMLError("a section contains itself")
    match node:
        case yaml.MappingNode():
            pairs = [(loader.construct_object(key, deep=True), key, value) for key, value in node.value]
        case yaml.SequenceNode():
            pairs = [(number, value, value) for number, value in enumerate(node.value)]
        case _:
            return
    for key, place, value in pairs:
        yield (*keys, key), place.start_mark.line + 1
        yield from _lines(loader, value, (*keys, key), (*outer, node))


def _twice(file: Path, node: yaml.Node | None, seen: set[int], keys: Keys = ()) -> Iterator[str]:
    """Yield a problem for each key that a section sets twice: PyYAML would silently take the last one."""
    if id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _twice(file, each, seen, keys)
        return
    first: dict[tuple[str, str], yaml.Node] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _MERGE:
            continue
        name = (*keys, key_node.value)
        yield from _twice(file, value_node, seen, name)
        before = first.setdefault((key_node.tag, key_node.value), key_node)
        if before is not key_node:
            yield _set_twice(name, *(f"{file}:{each.start_mark.line + 1}" for each in (before, key_node)))


def _from_environment(environ: Mapping[str, str], prefix: str = ENV_PREFIX) -> Iterator[Entry]:
    for name in sorted(environ):
        if name.startswith(prefix):
            parts = name.removeprefix(prefix).split("__")
            # `BOOTSTRAP_SERVERS` is `bootstrap.servers`; a name in mixed case (Spark's) keeps its case.
            keys = tuple((part.lower() if part.isupper() else part).replace("_", ".") for part in parts)
            yield from _written(keys, environ[name], name)


def _from_assignments(assignments: Iterable[str]) -> Iterator[Entry]:
    pairs = [assignment.partition("=") for assignment in assignments]
    # The rest is not quoted, because it may be a secret.
    if unclear := [re.split(r"[^\w.]", text)[0] for text, equals, _ in pairs if not (text.strip() and equals)]:
        raise ConfigError(tuple(f"--set {name}: write it as key=value" for name in unclear))
    for key, _, value in pairs:
        yield from _written((key.strip(),), value, f"--set {key.strip()}")


def _written(keys: Keys, text: str, origin: str) -> Iterator[Entry]:
    """Yield the values of a text that is YAML; other text, properties and secrets of stores are taken verbatim."""
    path = placed(keys)
    if is_property(path) or _is_secret_of_a_store(path):
        yield Entry(path, text or None, origin)
        return
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _take_texts_verbatim(node, keys)
        value = loader.construct_document(node) if node else None
    except (yaml.YAMLError, ValueError):
        value = text
    for inner, leaf in leaves(value, keys):
        yield Entry(placed(inner), leaf, origin)


def leaves(value: object, keys: Keys) -> Iterator[tuple[Keys, object]]:
    """Yield what is merged with other sources: each value in a section, but a value that is a section as a whole."""
    if isinstance(value, dict) and value and not _is_whole(keys, value):
        for key, inner in value.items():
            yield from leaves(inner, (*keys, key))
    else:
        yield keys, value


def _is_whole(keys: Keys, value: Mapping[Any, object]) -> bool:
    """Return whether a section is the value of a key: `pattern` in `source.topics` belongs to another key's name."""
    path = placed(keys)
    return is_value(path) and all(placed((*keys, key))[: len(path)] == path for key in value)
