"""The jars of a bundle are downloaded once, and only those with the pinned hash are used."""

from __future__ import annotations

import hashlib
import io
from contextlib import nullcontext
from email.message import Message
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest

from app.embedded import jars
from app.embedded.jars import Bundle, FetchFailed, fetch_jars

ONE, TWO = "org.one:one:1.0", "org.two:two:2.0"
HASHES = {module: hashlib.sha256(module.encode()).hexdigest() for module in (ONE, TWO)}
URLS = {
    "https://repo1.maven.org/maven2/org/one/one/1.0/one-1.0.jar": ONE,
    "https://repo1.maven.org/maven2/org/two/two/2.0/two-2.0.jar": TWO,
}


class Maven:
    """A repository whose jars contain their modules' names."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.altered: set[str] = set()
        self.failures = 0
        """How many requests fail before the first answer."""
        self.failure: OSError = URLError("temporary failure in name resolution")

    def open(self, url: str, timeout: float) -> io.BytesIO:
        """Return a jar."""
        module = URLS[url]
        self.asked.append(module)
        if self.failures:
            self.failures -= 1
            raise self.failure
        return io.BytesIO(b"altered" if module in self.altered else module.encode())


@pytest.fixture
def maven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Maven:
    """Return a repository in the place of Maven Central, for an empty cache."""
    repository = Maven()
    monkeypatch.setattr(jars, "urlopen", repository.open)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return repository


def test_jars_are_downloaded_once(maven: Maven) -> None:
    """The first call downloads each jar, and a second one none."""
    bundle = Bundle("Both", "both", "2 jars", HASHES)

    assert fetch_jars(bundle) == fetch_jars(bundle)
    assert {"one-1.0.jar": ONE, "two-2.0.jar": TWO} == {
        jar.name: jar.read_text() for jar in fetch_jars(bundle).iterdir()
    }
    assert {ONE, TWO} == set(maven.asked)
    assert 2 == len(maven.asked)


def test_an_altered_jar_is_refused(maven: Maven) -> None:
    """A jar with another hash is never written. The next attempt downloads only what is missing."""
    bundle = Bundle("Both", "both", "2 jars", HASHES)
    maven.altered = {TWO}
    with pytest.raises(FetchFailed, match=f"{TWO} is not the jar"):
        fetch_jars(bundle)
    assert not list(jars.cache_folder().rglob("two*.jar"))

    maven.altered = set()
    fetch_jars(bundle)

    assert 1 == maven.asked.count(ONE)
    assert 2 == maven.asked.count(TWO)


@pytest.mark.parametrize(("failures", "fetched"), [(2, True), (3, False)])
def test_a_download_is_tried_again(
    maven: Maven, monkeypatch: pytest.MonkeyPatch, failures: int, *, fetched: bool
) -> None:
    """A name server that is away for a moment ends nothing; after that, the message names the address."""
    monkeypatch.setattr(jars, "PAUSES", (0.0, 0.0))
    maven.failures = failures
    bundle = Bundle("One", "one", "1 jar", {ONE: HASHES[ONE]})

    with nullcontext() if fetched else pytest.raises(FetchFailed, match=r"one-1\.0\.jar .*name resolution"):
        assert fetch_jars(bundle).is_dir()

    assert 3 == len(maven.asked)


@pytest.mark.parametrize(("code", "requests"), [(404, 1), (403, 1), (429, 3), (408, 3), (503, 3)])
def test_a_refusal_is_not_repeated(maven: Maven, monkeypatch: pytest.MonkeyPatch, code: int, requests: int) -> None:
    """What the repository does not have will not be there in 20 seconds either; an overload may be over."""
    monkeypatch.setattr(jars, "PAUSES", (0.0, 0.0))
    maven.failures = 3
    maven.failure = HTTPError("https://repo1.maven.org/one", code, "why", Message(), None)

    with pytest.raises(FetchFailed, match=rf"one-1\.0\.jar .*{code}"):
        fetch_jars(Bundle("One", "one", "1 jar", {ONE: HASHES[ONE]}))

    assert requests == len(maven.asked)
