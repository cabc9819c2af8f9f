"""The options of the file store, before anything connects. Integration tests run its contract on real file systems."""

from __future__ import annotations

import sys

import fsspec.registry  # noqa: F401  # what a test may have loaded already is forgotten there
import pytest

from app.model import Plugin
from app.offsets.contract import StoreContext
from app.offsets.failures import StoreOptionError
from app.offsets.registry import open_store


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "/mnt/offsets"}, "url must be a URL, file://… or webhdfs://… or s3://… or s3a://…"),
        ({"url": "gopher://h/p"}, "url must be a URL, file://…"),
        ({"url": "file:///mnt", "user": "u"}, "file:// takes no option but url: remove user"),
        ({"url": "webhdfs://h:1/p", "password.file": "/not/there"}, "password.file cannot be read: /not/there"),
        ({}, "option 'url' is missing"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], problem: str) -> None:
    """The message says what to write."""
    with pytest.raises(StoreOptionError) as caught:
        open_store(Plugin("files", options), StoreContext("group", {}))

    assert problem in str(caught.value)


def test_the_client_of_s3_is_an_extra_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only S3 needs its many packages."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(vars(sys.modules["fsspec.registry"])["_registry"], "s3", raising=False)

    with pytest.raises(
        StoreOptionError, match=r"s3:// needs the package s3fs, which is not installed: pip install 'winnow-kafka\[s3]'"
    ):
        open_store(Plugin("files", {"url": "s3://bucket/path"}), StoreContext("group", {}))
