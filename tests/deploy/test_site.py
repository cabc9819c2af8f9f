"""`make docs`: the documentation as a site."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.docs import PAGES, ROOT


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Each page is there and can be searched for; so is a file of the repository that a page links to."""
    # The environment of this test is as it is: to make it anew would pull it from under the tests.
    command = ["make", "--silent", "--assume-old=.venv/.ready", "docs", f"SITE={tmp_path}"]
    subprocess.run(command, cwd=ROOT, check=True)

    pages = [tmp_path / re.sub(r"README\.md$|\.md$", _html, page.removeprefix("docs/")) for page in PAGES]
    assert [] == [page for page in pages if not page.is_file()]
    assert "Getting started" in (tmp_path / "search/search_index.json").read_text()
    assert 'href="repository/DESIGN.html"' in (tmp_path / "index.html").read_text()
    assert "winnow" in (tmp_path / "repository/DESIGN.html").read_text()


def _html(match: re.Match[str]) -> str:
    return "index.html" if match[0].startswith("README") else ".html"
