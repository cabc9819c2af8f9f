"""The status page is a single self-contained file, and shows only fields of the status document."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from html.parser import HTMLParser

from app.status.answers import PAGE, PAGE_POLICY
from app.status.condition import Condition
from app.status.document import Document, document, history
from app.status.health import LEVELS, Level
from tests.unit.status.snapshots import NOW, SNAPSHOT

TEXT = PAGE.decode()


class Elements(HTMLParser):
    """Every element of a page with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements() -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(TEXT)
    return parser.found


def test_nothing_comes_from_outside() -> None:
    """No script, style, font or picture is loaded, and only our own status is requested; the page is small."""
    addresses = [value for _, attributes in elements() for name, value in attributes.items() if name in ("src", "href")]

    assert ["data:,"] == addresses
    assert {"http://www.w3.org/2000/svg"} == set(re.findall(r"https?://[^\"'\s)]+", TEXT))  # a name, not an address
    assert not re.search(r"@import|url\(", TEXT)
    assert ["path"] == re.findall(r"fetch\(([^,]+),", TEXT)
    assert {"api/status", "api/history"} == set(re.findall(r"\bask\(\"([^\"]+)\"\)", TEXT))
    assert len(PAGE) < 30_000


def test_its_policy_allows_its_script_and_its_style_alone() -> None:
    """A browser runs and applies what has the hash, and ignores all else that is inline, attributes included."""
    policy = dict(each.split(" ", 1) for each in PAGE_POLICY.split("; "))

    for element in ("script", "style"):
        (content,) = re.findall(f"<{element}>(.*?)</{element}>", TEXT, re.DOTALL)
        digest = base64.b64encode(sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" == policy[f"{element}-src"]
    assert ["style", "script"] == [name for name, _ in elements() if name in ("script", "style")]
    assert not [name for _, attributes in elements() for name in attributes if re.match(r"style$|on", name)]


def test_what_comes_from_the_driver_is_never_markup() -> None:
    """A topic's name or an error message cannot become an element or a script."""
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", TEXT)


def test_every_field_that_the_page_reads_exists() -> None:
    """The page and the status document agree on their names."""
    known = keys(document(SNAPSHOT, NOW)) | keys(history(SNAPSHOT))
    read = set(re.findall(r"\b(?:status|each|last|past|moments|(?:status|last|past)\.\w+)\.([a-z_]+)\b(?!\()", TEXT))
    of_the_page = {"name", "names", "rank", "length"}

    assert read - of_the_page
    assert set() == read - of_the_page - known


def keys(tree: object) -> set[str]:
    if isinstance(tree, dict):
        return {*tree, *(name for value in tree.values() for name in keys(value))}
    return {name for each in tree for name in keys(each)} if isinstance(tree, list) else set()


def test_every_element_that_the_script_fills_exists() -> None:
    """Each id that the script looks up is in the page once."""
    ids = [attributes["id"] for _, attributes in elements() if "id" in attributes]
    looked_up = set(re.findall(r'at\("([\w-]+)"\)', TEXT))

    assert len(ids) == len(set(ids))
    assert looked_up
    assert set() == looked_up - set(ids)
    assert {f"{chart}{part}" for chart in ("rate", "lag", "share") for part in ("", "-now")} <= set(ids)


def test_every_condition_has_a_rank_and_a_colour() -> None:
    """The worst comes first, as where the worst one names the service."""
    listed = re.search(r"WORST = \[(.*?)\]", TEXT)
    assert listed

    assert set(LEVELS) == set(Condition)
    assert [each.value for each in LEVELS] == re.findall(r'"([^"]+)"', listed[1])
    marks = re.search(r"MARKS = \{(.*?)\};", TEXT)
    assert marks
    assert [each.value for each in LEVELS] == [name.strip('" ') for name in re.findall(r'("?[\w ]+"?): "', marks[1])]
    assert all(f".{each.value.replace(' ', '-')}" in TEXT for each in (*Condition, *Level))


def test_every_colour_that_a_style_names_is_defined() -> None:
    """A misspelt one would leave the default, which may not be seen."""
    assert set() == set(re.findall(r"var\((--\w+)\)", TEXT)) - set(re.findall(r"(--\w+):", TEXT))


def test_the_document_names_no_record() -> None:
    """Offsets, counts and errors only: a record's key, value or header must not appear."""
    status: Document = document(SNAPSHOT, NOW)

    assert set() == keys(status) & {"value", "key", "headers", "line", "payload"}
