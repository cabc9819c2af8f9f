"""Takes in the options of a store as a user wrote them, and names all that is wrong with them at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from app.offsets.registry import StoreOptionError
from parsers.errors import listed


class Options:
    """
    Checks options one by one, and remembers what is wrong with them.

    Each method returns the checked value. A wrong one yields a value of the right type, so that a store can check all
    its options before `raise_problems` refuses them.
    """

    def __init__(self) -> None:
        self._problems: list[str] = []

    def text(self, name: str, value: object) -> str:
        """Take in a text that is not empty; YAML's numbers are no texts."""
        if isinstance(value, str) and value.strip():
            return value
        self.wrong(f"{name} must be non-empty text; put a number in quotes")
        return "?"

    def number(self, name: str, value: object, *, least: int, most: int) -> int:
        """Take in a whole number; from the environment it may be text."""
        whole = int(value) if isinstance(value, str) and value.isdecimal() else value
        if isinstance(whole, int) and not isinstance(whole, bool) and least <= whole <= most:
            return whole
        self.wrong(f"{name} must be a whole number from {least} to {most}, not {value!r}")
        return least

    def choice(self, name: str, value: object, choices: Collection[str]) -> str:
        """Take in one of a few words."""
        if isinstance(value, str) and value in choices:
            return value
        self.wrong(f"{name} must be {' or '.join(sorted(choices))}, not {value!r}")
        return next(iter(choices))

    def url(self, name: str, value: object, schemes: Collection[str] = ()) -> str:
        """Take in a URL, if need be of one of these schemes. It may hold a password, so no message repeats it."""
        url = self.text(name, value)
        scheme = re.match(r"([\w+.-]+)://", url)
        if url != "?" and not (scheme and (not schemes or scheme[1] in schemes)):
            kinds = " or ".join(f"{each}://…" for each in schemes) or "such as file:///path"
            self.wrong(f"{name} must be a URL, {kinds}")
        elif not _has_a_host(url):
            self.wrong(f"{name} has no readable host: percent-encode the password, such as %2F for /")
        return url

    def secret(self, name: str, value: object, file: object) -> str:
        """Take in a secret that is given as it is, or in a file (`NAME.file`); empty where there is none."""
        if value is not None and file is not None:
            self.wrong(f"{name} and {name}.file are both set: keep the file")
        elif file is not None:
            return self._content(name, Path(self.text(f"{name}.file", file)))
        elif value is not None:
            return self.text(name, value)
        return ""

    def with_secrets(self, options: Mapping[str, object]) -> dict[str, object]:
        """Take in options that somebody else knows, with the content of each `NAME_file` as `NAME`."""
        files = {name.removesuffix("_file"): value for name, value in options.items() if name.endswith("_file")}
        plain = {name: value for name, value in options.items() if not name.endswith("_file") and name not in files}
        return plain | {name: self.secret(name, options.get(name), file) for name, file in files.items()}

    def _content(self, name: str, file: Path) -> str:
        try:
            return file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            self.wrong(f"{name}.file cannot be read: {file}: {reason}")
            return ""

    def wrong(self, problem: str) -> None:
        """Remember a problem."""
        self._problems.append(problem)

    def raise_problems(self) -> None:
        """
        Refuse the options if there is a problem.

        Raises:
            StoreOptionError: with all of them.
        """
        if self._problems:
            raise StoreOptionError(listed(self._problems))


def _has_a_host(url: str) -> bool:
    """Return whether the part of a URL before its path is a host and a port; what else it is may be half a password."""
    try:
        _ = urlsplit(url).port
    except ValueError:
        return False
    return True
