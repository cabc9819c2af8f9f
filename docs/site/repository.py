"""A MkDocs hook. It adds the repository's files that pages link to, so links work in the repository and on the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = "docs/"
ADDED = "repository/"
IMAGES = (".png", ".svg")
# The alternatives before a link are code: what looks like a link there is none.
_LINK = re.compile(
    r"^ *(```+).*?^ *\1|`[^`]+`|(?<=\]\()(?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?(?=\))", re.DOTALL | re.MULTILINE
)


def links(text: str) -> Iterator[tuple[str, str]]:
    """Yield the target and the anchor of each relative link and image in a page."""
    for match in _LINK.finditer(text):
        if _is_relative(match):
            yield match["target"], match["anchor"] or ""


def resolved(page: str, target: str) -> str:
    """Return the file that a link leads to; like the page, by its path in the repository."""
    return normpath(join(dirname(page), target)) if target else page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what the pages link to, and what these files link to in turn."""
    from mkdocs.structure.files import File

    pages = [PAGES + file.src_uri for file in files.documentation_pages()]
    seen = set(pages)
    for page in pages:
        for target, _ in links((ROOT / page).read_text("utf-8")):
            name = resolved(page, target)
            if name in seen or name.startswith(PAGES) or not (ROOT / name).exists():
                continue
            seen.add(name)
            if name.endswith(IMAGES):
                files.append(File.generated(config, _on_site(name), abs_src_path=str(ROOT / name)))
                continue
            files.append(File.generated(config, _on_site(name), content=_content(name)))
            if name.endswith(".md"):
                pages.append(name)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  # MkDocs' names
    """Let each link lead to where the site has its file."""
    here = page.file.src_uri
    source = here.removeprefix(ADDED) if here.startswith(ADDED) else PAGES + here

    def on_site(match: re.Match[str]) -> str:
        if not (_is_relative(match) and match["target"]):
            return match[0]
        there = _on_site(resolved(source, match["target"]))
        if files.get_file_from_path(there) is None:
            return match[0]  # MkDocs warns of it as its author wrote it
        return relpath(there, dirname(here)) + (match["anchor"] or "")

    return _LINK.sub(on_site, markdown)


def _is_relative(match: re.Match[str]) -> bool:
    return match["target"] is not None and not re.match(r"[a-z]+:", match["target"])


def _on_site(name: str) -> str:
    """Return where the site has a file of the repository, as if it were below docs/."""
    if name.startswith(PAGES):
        return name.removeprefix(PAGES)
    return ADDED + (name if name.endswith((".md", *IMAGES)) else f"{name}.md")


def _content(name: str) -> str:
    """Return a file or the list of a folder's files as a page; search leaves out what is not Markdown."""
    path = ROOT / name
    files = sorted(str(file.relative_to(ROOT)) for file in path.rglob("*") if file.is_file())
    text = "\n".join(files) if files else path.read_text("utf-8")
    if name.endswith(".md"):
        return text
    return f"---\ntitle: {name}\nsearch: {{exclude: true}}\n---\n\n````` {{.{_language(name)}}}\n{text}\n`````\n"


def _language(name: str) -> str:
    return {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml"}.get(Path(name).suffix, "text")
