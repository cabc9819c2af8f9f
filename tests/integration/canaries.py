"""Secrets that are easy to find again, and where somebody could look for them."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

ALIGNMENTS = 3
"""In how many ways text can stand in base64, by how many bytes are before it."""


class Canary(NamedTuple):
    """
    A secret with a value of its own.

    Args:
        name: whose secret it is.
        core: the part that looks the same in a URL, in JSON and in a command line.
    """

    name: str
    core: str

    @property
    def value(self) -> str:
        """The secret: with characters that a URL, a shell and YAML change."""
        return f"{self.core}+/= %&"

    @property
    def forms(self) -> Iterator[bytes]:
        """Yield how it may look: as it is, and in base64, whatever stands around it."""
        yield self.core.encode()
        for before in range(ALIGNMENTS):
            encoded = base64.b64encode(b"\0" * before + self.core.encode())
            yield encoded[4 if before else 0 : -4]  # the first and the last group hold more than the secret


class Canaries(dict[str, Canary]):
    """The canaries by the names that they are asked for by."""

    def __missing__(self, name: str) -> Canary:
        """Make one."""
        self[name] = Canary(name, f"c4nary{secrets.token_hex(12)}")
        return self[name]

    @classmethod
    def of(cls, *secrets: str) -> Canaries:
        """Return canaries for secrets that are known already."""
        return cls({each: Canary(each, each) for each in secrets})

    def file(self, name: str, folder: Path) -> str:
        """Return the path of a file that holds one."""
        file = folder / f"{name}.secret"
        file.write_text(self[name].value)
        return str(file)

    def found(self, content: bytes | str) -> set[str]:
        """Return the names of those that a content holds."""
        seen = content.encode() if isinstance(content, str) else content
        return {canary.name for canary in self.values() if any(form in seen for form in canary.forms)}

    def among(self, places: Iterable[tuple[str, bytes | str]]) -> Mapping[str, set[str]]:
        """Return which of them are in which of the places; a place has a name and a content."""
        found = ((place, self.found(content)) for place, content in places)
        return {place: names for place, names in found if names}


def files_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files below a folder, and their names; some go away meanwhile."""
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
