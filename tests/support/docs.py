"""The documentation as tests read it: its pages, their links, anchors, commands and configurations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from docs.site.repository import links, resolved

__all__ = ["FRAME", "PAGES", "ROOT", "anchors", "commands", "fenced", "links", "resolved"]

ROOT = Path(__file__).parents[2]
PAGES = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "docs").rglob("*.md"))
FRAME = ["README.md", "DESIGN.md", "CHANGELOG.md"]
"""What a reader opens in addition to the pages."""


def fenced(text: str, language: str) -> Iterator[str]:
    """Yield the content of each code block in a language, without the indent of a list."""
    for indent, content in re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE):
        yield re.sub(f"^{indent}", "", content, flags=re.MULTILINE)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a page with the output shown for it."""
    for block in fenced(text, "console"):
        for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command = re.match(r"[^\n]*<<'EOF'.*?^EOF$|(?:[^\n]*\\\n)*[^\n]*", each, re.DOTALL | re.MULTILINE)
            assert command
            yield command[0], each[command.end() :].strip()


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site generate them."""
    found: set[str] = set()
    for heading in re.findall(
        r"^#+ (.+)$", re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    ):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found
