"""Which values of the configuration are secrets, how they are hidden, and where they had better not stand."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.config.model import Config
from app.config.reading import Loaded
from app.config.sources import Keys, Origins, full_name, named, variable
from app.kafka import properties as kafka_properties
from app.offsets.options import MASK, PASSWORD_IN_URL, without_secrets
from app.offsets.options import is_secret as is_secret_option
from app.spark import properties as spark_properties

SECTIONS = (("kafka",), ("sink", "kafka"), ("spark",), ("offsets",))
"""The sections that may hold secrets."""

# Not for everybody to see, but nothing that opens a door.
_HARMLESS = re.compile(r"username$|certificate\.pem$|ca\.pem$|^ssl_|^key$")
_ARGUMENT = "--set "


def is_secret(keys: Keys, value: object) -> bool:
    """Return whether nobody may see a value; a path to a secret may be seen."""
    name, text = str(keys[-1]), "" if isinstance(value, Mapping) else str(value)
    match keys:
        case ("kafka", _) | ("sink", "kafka", _):
            return kafka_properties.is_secret(name)
        case ("spark", _):
            return spark_properties.is_secret(name, text)
        case ("offsets", *_):
            return is_secret_option(name)
    return False


def masked(config: Config) -> dict[str, Any]:
    """Return the configuration as a tree in which secrets are replaced."""
    return {key: _masked((key,), value) for key, value in _tree(config).items()}


def _masked(keys: Keys, value: object) -> Any:  # noqa: ANN401  # a part of the tree
    if is_secret(keys, value):
        return MASK
    match value:
        case dict():
            return {key: _masked((*keys, key), inner) for key, inner in value.items()}
        case list():
            return [_masked((*keys, place), each) for place, each in enumerate(value)]
        case str() if keys[0] == "offsets":
            return without_secrets(value)
    return value


def laid_open(loaded: Loaded) -> str:
    """
    Return a warning that names each secret which stands in the file or in an argument, and what to write instead.

    It is empty where there is none. What comes from the environment is nobody else's to see.
    """
    file, found, in_file = loaded.file, [], False
    for keys in _secrets(_tree(loaded.config)):
        origin = _origin(keys, loaded.origins)
        is_here = file is not None and origin.startswith(f"{file}:")
        if is_here or origin.startswith(_ARGUMENT):
            found.append(f"{full_name(keys)} ({origin}): {_instead(keys)}")
            in_file |= is_here
    if not found:
        return ""
    readers = f"; every user of this machine may read {file}: chmod 600 it" if in_file and _is_public(file) else ""
    return f"secrets are written where others may see them: {'; '.join(found)}{readers}"


def _tree(config: Config) -> dict[str, Any]:
    return config.model_dump(mode="json", by_alias=True, exclude_none=True)


def _secrets(tree: Mapping[str, Any]) -> Iterator[Keys]:
    for section in SECTIONS:
        value: Any = tree
        for key in section:
            value = value[key]
        yield from _within(section, value)


def _within(keys: Keys, value: object) -> Iterator[Keys]:
    """Yield the secrets in a part of the configuration that open a door, and URLs with a password."""
    if is_secret(keys, value):
        if not _HARMLESS.search(str(keys[-1])):
            yield keys
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _within((*keys, key), inner)
    elif keys[0] == "offsets" and isinstance(value, str) and PASSWORD_IN_URL.search(value):
        yield keys


def _origin(keys: Keys, origins: Origins) -> str:
    """Return where a value is written; of what is in a list, where the list is."""
    path = named(keys)
    return next((origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in origins), "")


def _instead(keys: Keys) -> str:
    name = str(keys[-1])
    match keys:
        case ("spark", "spark.authenticate.secret"):
            return f"write {name}.file: /path on Kubernetes, or set {variable(keys)} in the environment"
        case ("spark", _):
            return f"set WINNOW_SPARK__{name.replace('.', '_')} in the environment"
        case ("offsets", *_) if name == "url":
            return "write the URL without the password, and password.file: /path"
    return f"write {name}.file: /path"


def _is_public(file: Path | None) -> bool:
    return file is not None and bool(file.stat().st_mode & stat.S_IROTH)
