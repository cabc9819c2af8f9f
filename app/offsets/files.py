"""
A store of small files, one per partition, on a local or shared disk, HDFS (by WebHDFS) or S3.

    URL/GROUP/TOPIC/PARTITION   holds   {"offset": 1042, "metadata": "winnow/2 … at=1042"}

A file is replaced as a whole, so readers see the old content or the new one; JSON's closing brace shows that it is
complete. A file is read before it is replaced, because an offset must not go back. How reliable that check is depends
on the file system: see `DiskFolder`, `S3Folder` and `HdfsFolder`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote

import fsspec
import requests
from requests.adapters import HTTPAdapter

from app.errors import NotAllowed, NotUsable, Unreachable, WinnowError
from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from app.offsets.failures import StoreOptionError, refuse_to_go_back, saving, stored_offset, tied
from app.offsets.options import Options
from app.secrets import hidden, shown_url, without_secrets
from parsers.plugins import PRODUCT

READERS = 8  # files read concurrently
TRIES = 5  # to replace a file that other writers keep replacing
SECONDS = 4.0  # to wait for a connection, an answer or a lock
LOOK_SECONDS = 0.01


class FileOffsets:
    """
    The offsets of a group in files.

    Args:
        url: the folder: file:///path, webhdfs://host:port/path or s3://bucket/path. It must exist, and on a volume be
            below the mount point, which stays behind: an unmounted volume must not look like a first start.
        options: other options of the fsspec class (`user`, `endpoint_url`, `key`, `secret`, …); `NAME.file` reads one
            from a file.
    """

    transactional = False

    def __init__(self, context: StoreContext, *, url: str, **options: object) -> None:
        checked = Options()
        address = checked.url("url", url, FOLDERS)
        given = checked.with_secrets(options)
        checked.raise_problems()
        self._group = context.group
        self._url = shown_url(address)
        scheme = address.partition(":")[0]
        try:
            self._folder = FOLDERS[scheme](address, given)
        except ImportError as error:
            package, extra = ("s3fs", "s3") if scheme.startswith("s3") else ("requests", "files")
            missing = f"needs the package {package}, which is not installed: pip install '{PRODUCT}[{extra}]'"
            raise StoreOptionError(f"{scheme}:// {missing}") from error
        self._secrets = hidden("files", given)

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:  # noqa: ARG002  # outside Kafka's transactions, every offset is stable
        """Raises NotUsable if the folder is missing; see `OffsetStore.load`."""
        wanted = list(partitions)
        with self._asking(f"reading the offsets of group {self._group!r}"), ThreadPoolExecutor(READERS) as readers:
            read = list(readers.map(self._read, wanted)) if len(wanted) > 1 else [self._read(each) for each in wanted]
            if None in read:
                self._folder.check()
        return {partition: offset for partition, offset in zip(wanted, read, strict=True) if offset is not None}

    def _read(self, partition: Partition) -> CommittedOffset | None:
        path = self._path(partition)
        return self._offset_in(path, self._folder.read(path))

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        path = self._path(partition)
        with saving(partition, offset), self._asking(f"storing the offset of {partition}"):
            for _ in range(TRIES):
                with contextlib.suppress(Changed), self._folder.locked(path):
                    file = self._folder.read(path)
                    refuse_to_go_back(partition, self._offset_in(path, file), offset)
                    self._folder.replace(path, _content(offset, metadata), file)
                    return
            again = f"other writers replaced {path} {TRIES} times in a row"
            raise Unreachable(f"{again} while storing the offset of {partition}")

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        path = self._path(partition)
        with saving(partition, offset), self._asking(f"storing the offset of {partition}"), self._folder.locked(path):
            self._folder.overwrite(path, _content(offset, metadata))

    def close(self) -> None:
        self._folder.close()

    def _path(self, partition: Partition) -> str:
        return f"{_folder_of(self._group, self._folder.longest_name)}/{partition.topic}/{partition.number}"

    def _offset_in(self, path: str, file: File | None) -> CommittedOffset | None:
        """Return the offset in a file, marked as corrupt if it holds none."""
        if file is None:
            return None
        place = f"{self._url}/{path}"
        try:
            document = json.loads(file.content)
            return stored_offset(str(document["offset"]), str(document.get("metadata", "")), place)
        except (ValueError, TypeError, KeyError):
            return CommittedOffset.not_readable(f"{place} holds {file.content[:40]!r}, which is not an offset")

    @contextlib.contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        """Translate errors; each file system raises those of its own libraries."""
        where = f"the file system of {self._url}"
        try:
            yield
        except (WinnowError, Changed):
            raise
        except PermissionError as error:
            said = f"{where} denied access while {doing}: {self._said(error)}"
            raise NotAllowed(said, "check the permissions there") from error
        except FileNotFoundError as error:
            said = f"{where} lacks a folder while {doing}: {self._said(error)}"
            raise NotUsable(said, "create it, or mount it") from error
        except Exception as error:
            said = f"{where} is not responding while {doing}: {type(error).__name__}: {self._said(error)}"
            raise Unreachable(said) from error

    def _said(self, error: Exception) -> str:
        """Return an error's text without secrets: a query may hold a token."""
        return without_secrets(str(error), self._secrets)


def _folder_of(group: str, longest: int) -> str:
    """Return the name of a group's folder. Kafka allows groups that lead out of a folder, or that no disk can name."""
    name = quote(group, safe="")
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return name if len(name) <= longest else f"{name[:150]}~{hashlib.sha256(group.encode()).hexdigest()}"


def _content(offset: int, metadata: str) -> bytes:
    return json.dumps({"offset": offset, "metadata": tied(offset, metadata)}).encode()


class Changed(Exception):  # not an error: the caller tries again
    """Another writer replaced the file after it was read."""


class File(NamedTuple):
    """The content of a file, and its version if the file system has versions."""

    content: bytes
    version: str = ""


class Folder(ABC):
    """A folder on one kind of file system."""

    longest_name = 255
    """In bytes; on usual disks and on HDFS."""

    @abstractmethod
    def check(self) -> None:
        """Raise FileNotFoundError if the folder itself does not exist."""

    @abstractmethod
    def read(self, path: str) -> File | None:
        """Return a file; None if it does not exist."""

    @abstractmethod
    def overwrite(self, path: str, content: bytes) -> None:
        """Replace a file as a whole, or create it and its folders."""

    def replace(self, path: str, content: bytes, seen: File | None) -> None:  # noqa: ARG002  # for those with versions
        """Replace a file that was read as `seen`; raise Changed if the file system detects a change since."""
        self.overwrite(path, content)

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[None]:  # noqa: ARG002  # for those with locks
        """Keep other writers out, if the file system can."""
        yield

    def close(self) -> None:  # noqa: B027  # most have nothing to close
        """Release connections."""


class DiskFolder(Folder):
    """A folder on a local or shared disk. A lock keeps other writers out, as far as the disk's locks work."""

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        if options:
            raise StoreOptionError(f"file:// takes no option but url: remove {next(iter(options))}")
        self._folder = Path(url.removeprefix("file://"))

    def check(self) -> None:
        self._folder.stat()

    def read(self, path: str) -> File | None:
        try:
            return File((self._folder / path).read_bytes())
        except FileNotFoundError:
            return None

    def overwrite(self, path: str, content: bytes) -> None:
        file = self._made(path)
        new = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        try:
            with new.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # so that the rename survives a power failure
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Hold the file's lock, which the system releases when the process ends."""
        file = self._made(path)
        with file.with_name(f".{file.name}.lock").open("ab") as lock:
            deadline = time.monotonic() + SECONDS
            while not _takes(lock):
                if time.monotonic() > deadline:
                    raise Unreachable(f"{file} has been locked by another process for {SECONDS:.0f} s")
                time.sleep(LOOK_SECONDS)
            yield

    def _made(self, path: str) -> Path:
        """Create the folders below the configured one, and return the file's path."""
        self.check()
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        return file


def _takes(lock: IO[bytes]) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


class HdfsFolder(Folder):
    """
    A folder on HDFS, by WebHDFS. A new file is renamed over the old one, which HDFS does atomically.

    HDFS can neither lock nor compare: if a zombie saves at the same moment as the owner, the older offset may win until
    the owner's next save. Records between the two could be processed twice; none is lost.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        filesystem, path = fsspec.url_to_fs(url, skip_instance_cache=True, **options)
        self._hdfs = filesystem
        self._path = path.rstrip("/")
        for scheme in ("http://", "https://"):
            filesystem.session.mount(scheme, _InTime())

    def check(self) -> None:
        self._hdfs.info(self._path or "/")

    def read(self, path: str) -> File | None:
        try:
            return File(self._hdfs._call("OPEN", path=f"{self._path}/{path}").content)  # noqa: SLF001  # as in overwrite
        except FileNotFoundError:
            return None

    def overwrite(self, path: str, content: bytes) -> None:
        """
        Write a new file, and rename it over the old one.

        These are WebHDFS's operations: fsspec's own create a file and append to it, and cannot rename over another.
        """
        file = f"{self._path}/{path}"
        folder, _, name = file.rpartition("/")
        new = f"{folder}/.{name}.{uuid.uuid4().hex}"
        call = self._hdfs._call  # noqa: SLF001  # sends any WebHDFS operation
        self.check()
        try:
            call("CREATE", method="put", path=new, data=content, overwrite="true")
            call("RENAME", method="put", path=new, destination=file, renameoptions="OVERWRITE")
        except Exception:
            with contextlib.suppress(Exception):  # a server that is away keeps the file
                call("DELETE", method="delete", path=new)
            raise

    def close(self) -> None:
        self._hdfs.session.close()


class _InTime(HTTPAdapter):
    """Gives every request a timeout; requests has none by default."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]  # noqa: ANN401  # passed on as they are
        return super().send(request, **{**options, "timeout": SECONDS})


class S3Folder(Folder):
    """
    A folder on S3 or a compatible server. A put is atomic, and conditional on the file being the one that was read
    (If-Match), so two writers cannot move an offset back.
    """

    longest_name = 1_024  # of a key as a whole

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        patience = {"connect_timeout": SECONDS, "read_timeout": SECONDS, "retries": {"max_attempts": 1}}
        self._s3, path = fsspec.url_to_fs(
            url, skip_instance_cache=True, use_listings_cache=False, config_kwargs=patience, **options
        )
        self._s3.retries = 1  # each of the client's two tries; more of them take longer than the watchdog allows
        self._path = path.rstrip("/")

    def check(self) -> None:
        """Raise FileNotFoundError if the bucket does not exist; S3 has no folders."""
        self._s3.call_s3("head_bucket", Bucket=self._path.partition("/")[0])

    def read(self, path: str) -> File | None:
        file = f"{self._path}/{path}"
        try:
            tag = self._s3.info(file, refresh=True)["ETag"]
            return File(self._s3.cat_file(file), tag)
        except FileNotFoundError:
            return None

    def overwrite(self, path: str, content: bytes) -> None:
        self._s3.pipe_file(f"{self._path}/{path}", content)

    def replace(self, path: str, content: bytes, seen: File | None) -> None:
        """Put a file if it is still the one that was read; a tag older than the content fails the put."""
        condition = {"IfNoneMatch": "*"} if seen is None else {"IfMatch": seen.version}
        try:
            self._s3.pipe_file(f"{self._path}/{path}", content, **condition)
        except OSError as error:
            response = getattr(error.__cause__, "response", None) or {}
            if response.get("Error", {}).get("Code") in ("PreconditionFailed", "ConditionalRequestConflict"):
                raise Changed from error
            raise


Open = Callable[[str, Mapping[str, object]], Folder]
FOLDERS: Mapping[str, Open] = {"file": DiskFolder, "webhdfs": HdfsFolder, "s3": S3Folder, "s3a": S3Folder}
