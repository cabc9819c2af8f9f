"""Masks the secrets of the configuration, and warns about those that others can read."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from app.config.model import PROPERTY_SECTIONS, Config
from app.config.reading import Loaded
from app.config.sources import Keys, full_name, origin_of, variable
from app.secrets import JAVA_OPTIONS, MASK, SHORT, shown_option, shown_property

PLUGINS = (("offsets", "store"), ("offsets", "mirrors"), ("parser",))
"""The sections that choose a plugin by `name`; `mirrors` is a list of them."""
DECLARED = ("name", "samples")
"""The keys of such a section that are not options."""

# Keys and values that look like credentials, for the warning only. `app.secrets` decides what may be shown.
_DOOR = re.compile(r"secret|password|passphrase|token|access[._]?key|key\.pem$|^key$|kinit\.cmd$", re.IGNORECASE)
_DOOR_IN_A_VALUE = re.compile(rf"({_DOOR.pattern})[\w.-]*\s*=|://[^/@:\s]*:\S*@", re.IGNORECASE)
_SECRET_PART = re.compile(r"=([^\s&,;'\"]+)")
"""What follows a name in a text that holds several, such as `-Dpassword=…`."""
_OF_A_URL = re.compile(r"://([^/@:\s]*)(?::((?:(?!://)\S)*?))?@(?![^,\s/]*@)")
"""User and password of each URL in a text: no password contains `://`, and the last @ is before the host."""
_ARGUMENT = "--set "


def masked(config: Config) -> dict[str, Any]:
    """Return the configuration as a tree with every value masked unless its key is known to hold no secret."""
    return {key: _masked((key,), value) for key, value in _tree(config).items()}


def _tree(config: Config) -> dict[str, Any]:
    return config.model_dump(mode="json", by_alias=True, exclude_none=True)


def _masked(keys: Keys, value: Any) -> Any:  # noqa: ANN401  # a part of the tree
    if keys in PROPERTY_SECTIONS:
        return {name: shown_property(keys[0], name, text) for name, text in value.items()}
    if keys in PLUGINS:
        return [_of_plugin(each) for each in value] if isinstance(value, list) else _of_plugin(value)
    if isinstance(value, dict):
        return {key: _masked((*keys, key), inner) for key, inner in value.items()}
    return value


def _of_plugin(section: Mapping[str, Any]) -> dict[str, Any]:
    name = section["name"]
    return {key: value if key in DECLARED else shown_option(name, key, value) for key, value in section.items()}


def secret_texts(config: Config) -> list[str]:
    """Return the texts of the configuration that must not be shown, to mask them wherever else they appear."""
    return [each for each in _hidden(_tree(config), masked(config)) if len(each) > SHORT]


def _hidden(value: Any, seen: Any) -> Iterator[str]:  # noqa: ANN401  # a part of each tree
    if value == seen:
        return
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _hidden(each, seen if seen == MASK else seen[key])
        return
    text = str(value)
    yield text
    yield from _SECRET_PART.findall(text)
    for user_and_password in _OF_A_URL.findall(text):
        yield from map(unquote, user_and_password)


def exposed_secrets(loaded: Loaded) -> str:
    """
    Return a warning that names each secret in the file or an argument, and what to write instead.

    It is empty if there is none. Other users cannot see the environment, so secrets there are fine, unless they become
    arguments of Java.
    """
    file, found, in_file = loaded.file, [], False
    seen = masked(loaded.config)
    tree = {"kafka": {}} | _tree(loaded.config)  # the most likely place comes first
    for keys in _doors((), tree, seen):
        origin = origin_of(keys, loaded.origins)
        is_here = origin.startswith(f"{file}:")
        if is_here or origin.startswith(_ARGUMENT) or JAVA_OPTIONS.fullmatch(str(keys[-1])):
            found.append(f"{full_name(keys)} ({origin}): {_instead(keys)}")
            in_file |= is_here
    if not found:
        return ""
    is_public = in_file and file is not None and file.stat().st_mode & stat.S_IROTH
    readers = f"; every user of this machine can read {file}: chmod 600 it" if is_public else ""
    return f"secrets are stored where others may see them: {'; '.join(found)}{readers}"


def _doors(keys: Keys, value: Any, seen: Any) -> Iterator[Keys]:  # noqa: ANN401  # a part of each tree
    """Yield the keys of masked values that look like credentials."""
    if value == seen:
        return
    name = str(keys[-1]) if keys else ""
    if seen == MASK and _DOOR.search(name):
        yield keys
    elif isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in inner:
            yield from _doors((*keys, key), each, seen if seen == MASK else seen[key])
    elif _DOOR_IN_A_VALUE.search(str(value)):
        yield keys


def _instead(keys: Keys) -> str:
    name = str(keys[-1])
    match keys:
        case ("spark", "spark.authenticate.secret"):
            return f"use {name}.file: /path on Kubernetes, or set {variable(keys)} in the environment"
        case ("spark", _) if JAVA_OPTIONS.fullmatch(name):
            return f"it would be an argument of Java: write such options into a file, and set {name}: '@/path'"
        # In the name of a variable, an underscore stands for a dot, and no shell takes a hyphen.
        case ("spark", _) if name.replace(".", "").isalnum():
            return f"set WINNOW_SPARK__{name.replace('.', '_')} in the environment"
        case ("spark" | "parser" as section, option, *_):
            return f'set {variable((section,))}={{"{option}": …}} in the environment'
        case ("offsets", *_) if name == "url":
            return "remove the password from the URL, and use password.file: /path"
    return f"use {name}.file: /path"
