"""Secrets that are easy to find, and the places to search for them."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

ALIGNMENTS = 3
"""The three alignments of text in base64, by the number of bytes before it."""


class Canary(NamedTuple):
    """
    A secret with a unique value.

    Args:
        name: whose secret it is.
        core: the part that looks the same in a URL, in JSON and in a command line.
    """

    name: str
    core: str

    @property
    def value(self) -> str:
        """The secret, with characters that a URL, a shell and YAML escape."""
        return f"{self.core}+/= %&"

    @property
    def forms(self) -> Iterator[bytes]:
        """Yield the forms it may take: plain, and base64 at each alignment."""
        yield self.core.encode()
        for before in range(ALIGNMENTS):
            encoded = base64.b64encode(b"\0" * before + self.core.encode())
            yield encoded[4 if before else 0 : -4]  # the first and the last group contain neighbouring bytes


class Canaries(dict[str, Canary]):
    """The canaries by name; a new name makes a new one."""

    def __missing__(self, name: str) -> Canary:
        """Make a canary."""
        self[name] = Canary(name, f"c4nary{secrets.token_hex(12)}")
        return self[name]

    @classmethod
    def of(cls, *secrets: str) -> Canaries:
        """Return canaries for existing secrets."""
        return cls({each: Canary(each, each) for each in secrets})

    def file(self, name: str, folder: Path) -> str:
        """Return the path of a file that contains one."""
        file = folder / f"{name}.secret"
        file.write_text(self[name].value)
        return str(file)

    def found(self, content: bytes | str) -> set[str]:
        """Return the names of the canaries in a content."""
        seen = content.encode() if isinstance(content, str) else content
        return {canary.name for canary in self.values() if any(form in seen for form in canary.forms)}

    def among(self, places: Iterable[tuple[str, bytes | str]]) -> Mapping[str, set[str]]:
        """Return which canaries are in which places, each with a name and a content."""
        found = ((place, self.found(content)) for place, content in places)
        return {place: names for place, names in found if names}


def files_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files below a folder with their names. Some disappear meanwhile."""
    for file in folder.rglob("*"):
        try:
            if file.is_file():
                yield f"file {file}", str(file).encode() + file.read_bytes()
        except OSError:
            continue


def processes(root: int) -> Iterator[tuple[str, str]]:
    """Yield the arguments of a process and its descendants, and the environment of the descendants."""
    driver = psutil.Process(root)
    yield "arguments of the driver", "\0".join(driver.cmdline())
    for each in driver.children(recursive=True):
        try:
            name = re.sub(r"\s.*", "", each.name())
            yield f"arguments of {name} {each.pid}", "\0".join(each.cmdline())
            yield f"environment of {name} {each.pid}", repr(each.environ())
        except psutil.Error:
            continue
