"""`make docs`: the documentation as a site."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.support.docs import PAGES, ROOT


def build(site: Path, checkout: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout without updating the environment, which the running tests use."""
    command = ["make", "--silent", "--assume-old=.venv/.ready", "docs", f"SITE={site}", f"DOCS={checkout / 'docs'}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_page_is_on_the_site(tmp_path: Path) -> None:
    """The site contains each page, a search index, and each repository file that a page links to."""
    done = build(tmp_path)

    assert 0 == done.returncode, done.stderr
    pages = [tmp_path / re.sub(r"README\.md$|\.md$", _html, page.removeprefix("docs/")) for page in PAGES]
    assert [] == [page for page in pages if not page.is_file()]
    assert "Getting started" in (tmp_path / "search/search_index.json").read_text()
    assert 'href="repository/DESIGN.html"' in (tmp_path / "index.html").read_text()
    assert "winnow" in (tmp_path / "repository/DESIGN.html").read_text()


def test_a_broken_link_fails(tmp_path: Path) -> None:
    """The build fails if the repository files that the pages link to are missing."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")

    done = build(tmp_path / "site", tmp_path)

    assert done.returncode
    assert "contains a link '../DESIGN.md'" in done.stderr, done.stderr


def _html(match: re.Match[str]) -> str:
    return "index.html" if match[0].startswith("README") else ".html"
