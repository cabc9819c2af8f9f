"""Writes what `winnow doctor` saw into one archive for a bug report, without secrets and without records."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.config import Loaded, secret_texts, shown
from app.errors import ConfigError
from app.operate.doctor import Examination
from app.secrets import without_secrets

FOLDER = "winnow-doctor"
PRIVATE = 0o600


def write(file: Path, loaded: Loaded, report: Examination, versions: Mapping[str, str]) -> None:
    """Write the archive, readable by its owner only. Raises ConfigError if the file cannot be written."""
    try:
        opened = os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE), "wb")
        with opened, tarfile.open(fileobj=opened, mode="w:gz") as archive:
            os.fchmod(opened.fileno(), PRIVATE)  # an older file has a mode of its own
            for name, text in _contents(loaded, report, versions):
                content = text.encode()
                entry = tarfile.TarInfo(f"{FOLDER}/{name}")
                entry.size, entry.mtime, entry.mode = len(content), int(time.time()), PRIVATE
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise ConfigError((f"--bundle: {file}: {error.strerror}",)) from None


def _contents(loaded: Loaded, report: Examination, versions: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each file's name and text: the configuration, the report, the versions, and the facts of the parts."""
    config, secrets = loaded.config, secret_texts(loaded.config)
    parser = config.parser.model_copy(update={"samples": ()})  # they may be real records
    cleared = replace(loaded, config=config.model_copy(update={"parser": parser}))
    yield "configuration.yaml", without_secrets(shown(cleared), secrets)
    for name, value in {"report": report.as_json(), "versions": versions, **report.facts}.items():
        yield f"{name}.json", json.dumps(_without(value, secrets), indent=1, ensure_ascii=False)


def _without(value: Any, secrets: list[str]) -> Any:  # noqa: ANN401  # JSON
    """Mask secrets in every text of a document; in its JSON text, an escaped one would not be found."""
    match value:
        case str():
            return without_secrets(value, secrets)
        case Mapping():
            return {key: _without(each, secrets) for key, each in value.items()}
        case list() | tuple():
            return [_without(each, secrets) for each in value]
    return value
