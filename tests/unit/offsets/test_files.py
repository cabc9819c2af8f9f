"""The options of the file store, before anything connects. Integration tests run its contract on real file systems."""

from __future__ import annotations

import socketserver
import sys
import threading
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import fsspec.registry  # noqa: F401  # what a test may have loaded already is forgotten there
import pytest

from app.errors import Unreachable
from app.model import CommittedOffset, Partition, Plugin
from app.offsets import files
from app.offsets.contract import StoreContext
from app.offsets.failures import StoreOptionError
from app.offsets.files import DiskFolder, HdfsFolder, S3Folder
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


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("idc-cleansing", "idc-cleansing"),
        ("team/idc v1.2", "team%2Fidc%20v1.2"),
        ("...", "..."),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("g" * 255, "g" * 255),
    ],
)
def test_the_folder_of_a_group(group: str, name: str, tmp_path: Path) -> None:
    """It is below the configured one, whatever Kafka allows as a group."""
    folder = tmp_path / "offsets"
    folder.mkdir()
    with closing(open_store(Plugin("files", {"url": f"file://{folder}"}), StoreContext(group, {}))) as store:
        store.save(Partition("raw", 0), 42, "")

    assert [folder] == list(tmp_path.iterdir())
    assert [name] == [each.name for each in folder.iterdir()]
    assert (folder / name / "raw/0").is_file()


@pytest.mark.parametrize("changed", ["save", "reset"])
def test_a_number_that_another_tool_has_set(changed: str, tmp_path: Path) -> None:
    """The metadata beside it is that of another offset: an editor changes one number."""
    with closing(open_store(Plugin("files", {"url": f"file://{tmp_path}"}), StoreContext("g", {}))) as store:
        getattr(store, changed)(Partition("raw", 0), 42, "m")
        file = tmp_path / "g/raw/0"
        file.write_text(file.read_text().replace('"offset": 42', '"offset": 7'))

        assert {Partition("raw", 0): CommittedOffset(7)} == store.load([Partition("raw", 0)], stable=True)


def test_a_file_that_another_tool_has_written(tmp_path: Path) -> None:
    """The number is enough."""
    (tmp_path / "g/raw").mkdir(parents=True)
    (tmp_path / "g/raw/0").write_text('{"offset": 7}')
    with closing(open_store(Plugin("files", {"url": f"file://{tmp_path}"}), StoreContext("g", {}))) as store:
        assert {Partition("raw", 0): CommittedOffset(7)} == store.load([Partition("raw", 0)], stable=True)


def test_a_long_name_is_kept_where_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a disk and HDFS limit the name of a folder; on S3 such a group may have offsets from before."""
    group, asked = "清" * 40, list[str]()

    class Bucket(DiskFolder):
        longest_name = S3Folder.longest_name

        def read(self, path: str) -> None:
            asked.append(path)

    monkeypatch.setattr(files, "FOLDERS", {"file": Bucket})
    with closing(open_store(Plugin("files", {"url": f"file://{tmp_path}"}), StoreContext(group, {}))) as store:
        store.load([Partition("raw", 0)], stable=True)

    assert [f"{quote(group)}/raw/0"] == asked


def test_groups_that_no_disk_can_name(tmp_path: Path) -> None:
    """Escaped, even a short name in Chinese is long; two that begin alike have folders of their own."""
    groups = {f"{'清洗' * 20}-{number}": number for number in (1, 2)}
    context = {group: StoreContext(group, {}) for group in groups}
    stores = {each: open_store(Plugin("files", {"url": f"file://{tmp_path}"}), context[each]) for each in groups}
    for group, store in stores.items():
        store.save(Partition("raw", 0), groups[group], "")

    found = {each: store.load([Partition("raw", 0)], stable=True) for each, store in stores.items()}

    assert {group: {Partition("raw", 0): CommittedOffset(number, "")} for group, number in groups.items()} == found


def test_the_client_of_s3_is_an_extra_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only S3 needs its many packages."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(vars(sys.modules["fsspec.registry"])["_registry"], "s3", raising=False)

    with pytest.raises(
        StoreOptionError, match=r"s3:// needs the package s3fs, which is not installed: pip install 'winnow-kafka\[s3]'"
    ):
        open_store(Plugin("files", {"url": "s3://bucket/path"}), StoreContext("group", {}))


@pytest.mark.parametrize("refused", ["CREATE", "RENAME"])
def test_a_failed_rename_leaves_no_file(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that tries again for hours would fill the folder. Whatever the clean-up says, the first error counts."""
    folder, calls = HdfsFolder("webhdfs://h:1/p", {}), list[tuple[str, str]]()

    def call(operation: str, *, path: str, **_: object) -> None:
        calls.append((operation, path))
        if operation in (refused, "DELETE"):
            raise PermissionError(operation)

    monkeypatch.setattr(folder, "check", lambda: None)
    monkeypatch.setattr(folder._hdfs, "_call", call)

    with pytest.raises(PermissionError, match=refused):
        folder.overwrite("raw/0", b"{}")
    assert ("DELETE", calls[0][1]) == calls[-1]


def test_s3_is_asked_twice() -> None:
    """A server that hangs takes 4 s for each try, of which the watchdog allows only a few."""
    tries = list[object]()

    class Hanging(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            tries.append(self.request.recv(1))  # and close the connection, so that the test need not wait

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Hanging) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        options = {"url": "s3://bucket/path", "endpoint_url": endpoint, "key": "k", "secret": "s"}
        store = open_store(Plugin("files", options), StoreContext("group", {}))
        with closing(store), pytest.raises(Unreachable):
            store.load([Partition("raw", 0)], stable=True)
        server.shutdown()

    assert len(tries) <= 4  # aiohttp repeats each of the two once if the connection is closed, though not if it hangs
