"""Checks the options of a store, and reports all problems at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from app.offsets.failures import StoreOptionError
from parsers.errors import listed


class Options:
    """
    Checks options one by one and collects the problems.

    Each method returns the checked value. For a wrong one it returns some value of the right type, so that a store can
    check all its options before `raise_problems`.
    """

    def __init__(self) -> None:
        self._problems: list[str] = []

    def text(self, name: str, value: object) -> str:
        """Check non-empty text; a YAML number is not text."""
        if isinstance(value, str) and value.strip():
            return value
        self.wrong(f"{name} must be non-empty text; put a number in quotes")
        return "?"

    def number(self, name: str, value: object, *, most: int) -> int:
        """Check a whole number from 1 on, which may be text from the environment."""
        whole = int(value) if isinstance(value, str) and value.isdecimal() else value
        if isinstance(whole, int) and not isinstance(whole, bool) and 1 <= whole <= most:
            return whole
        self.wrong(f"{name} must be a whole number from 1 to {most}, not {value!r}")
        return 1

    def choice(self, name: str, value: object, choices: Collection[str]) -> str:
        if isinstance(value, str) and value in choices:
            return value
        self.wrong(f"{name} must be {' or '.join(sorted(choices))}, not {value!r}")
        return next(iter(choices))

    def url(self, name: str, value: object, schemes: Collection[str]) -> str:
        """Check a URL of one of these schemes. No message quotes it, as it may hold a password."""
        url = self.text(name, value)
        scheme = re.match(r"([\w+.-]+)://", url)
        if url != "?" and not (scheme and scheme[1] in schemes):
            self.wrong(f"{name} must be a URL, {' or '.join(f'{each}://…' for each in schemes)}")
            return url
        try:
            _ = urlsplit(url).port
        except ValueError:  # host and port may be half a password
            self.wrong(f"{name} has no readable host: percent-encode the password, such as %2F for /")
        return url

    def secret(self, name: str, value: object, file: object) -> str:
        """Check a secret given as a value or in a file (`NAME.file`); return nothing if there is none."""
        if value is not None and file is not None:
            self.wrong(f"{name} and {name}.file are both set: keep the file")
        elif file is not None:
            path = Path(self.text(f"{name}.file", file))
            try:
                return path.read_text("utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not text"
                self.wrong(f"{name}.file cannot be read: {path}: {reason}")
        elif value is not None:
            return self.text(name, value)
        return ""

    def with_secrets(self, options: Mapping[str, object]) -> dict[str, object]:
        """Return unchecked options, with the content of each `NAME_file` as `NAME`."""
        files = {name.removesuffix("_file"): value for name, value in options.items() if name.endswith("_file")}
        plain = {name: value for name, value in options.items() if not name.endswith("_file") and name not in files}
        return plain | {name: self.secret(name, options.get(name), file) for name, file in files.items()}

    def wrong(self, problem: str) -> None:
        self._problems.append(problem)

    def raise_problems(self) -> None:
        """Raise StoreOptionError with all problems, if there are any."""
        if self._problems:
            raise StoreOptionError(listed(self._problems))
