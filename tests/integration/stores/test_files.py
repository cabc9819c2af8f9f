"""The offset store in files: on a disk, on a real HDFS, and on S3 served by moto on loopback."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import fsspec
import pytest
from moto.server import ThreadedMotoServer

from app.embedded.broker import HeldPorts
from app.errors import Fenced, NotUsable, Transient
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.faults import OffsetStoreFaults, again
from app.offsets.files import FileOffsets
from app.offsets.testing import OffsetStoreContract
from tests.servers.gate import Gate
from tests.servers.hdfs import Hdfs

MOTO: dict[str, ThreadedMotoServer] = {}
S3_KEYS = {"key": "a", "secret": "b"}


class InFiles:
    group = "a/group"
    url: str
    options: dict[str, object]

    def open_store(self) -> OffsetStore:
        return FileOffsets(StoreContext(self.group, {}), url=self.url, **self.options)


class OnDisk(InFiles):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder, self.url, self.options = tmp_path, f"file://{tmp_path}", {}


class OnHdfs(InFiles):
    @pytest.fixture(autouse=True)
    def _folder(self, hdfs: Hdfs) -> None:
        self.filesystem = fsspec.filesystem("webhdfs", host="127.0.0.1", port=hdfs.port, user="root")
        self.path = f"/offsets-{uuid.uuid4().hex[:8]}"
        self.filesystem.mkdir(self.path)
        self.url, self.options = f"webhdfs://{hdfs.address}{self.path}", {"user": "root"}


def _serve(port: int) -> str:
    """Serve S3 in this process and return the address."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    address = f"http://127.0.0.1:{port}"
    MOTO[address] = server
    return address


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Return the address of an S3 server."""
    ports = HeldPorts(1)  # nobody else gets it while a test has stopped the server
    address = _serve(ports[0])
    yield address
    MOTO[address].stop()


class OnS3(InFiles):
    @pytest.fixture(autouse=True)
    def _bucket(self, s3: str) -> None:
        self.address = s3
        self.bucket = f"offsets-{uuid.uuid4().hex[:8]}"
        self.client = boto3.client(
            "s3",
            endpoint_url=s3,
            aws_access_key_id="a",
            aws_secret_access_key="b",
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket=self.bucket)
        self.url = f"s3://{self.bucket}/winnow"
        self.options = {"endpoint_url": s3, **S3_KEYS}


class TestDisk(OnDisk, OffsetStoreContract):
    def test_the_layout(self) -> None:
        """Each partition has a small, readable JSON file. A group's name may contain a slash."""
        with self.store() as store:
            store.save(Partition("raw", 7), 42, "metadata")

        file = self.folder / "a%2Fgroup/raw/7"
        assert {"offset": 42, "metadata": "metadata at=42"} == json.loads(file.read_text())
        assert {"7", ".7.lock"} == {each.name for each in file.parent.iterdir()}

    def test_a_volume_that_is_not_mounted(self) -> None:
        """A missing folder is an error rather than a first start."""
        self.url = f"file://{self.folder}/mnt"
        with self.store() as store:
            with pytest.raises(NotUsable, match="mount"):
                store.load([Partition("raw", 0)], stable=True)
            with pytest.raises(Transient):
                store.save(Partition("raw", 0), 1, "")

    def test_a_full_disk_keeps_the_old_offset(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A new file that cannot be written completely never replaces the old one."""
        partition = Partition("raw", 0)
        with self.store() as store:
            store.save(partition, 1, "")
            monkeypatch.setattr(os, "fsync", _no_space)
            with pytest.raises(Transient):
                store.save(partition, 2, "")

            assert {partition: CommittedOffset(1)} == store.load([partition], stable=True)
            assert {"0", ".0.lock"} == {each.name for each in (self.folder / "a%2Fgroup/raw").iterdir()}


class TestDiskFaults(OnDisk, OffsetStoreFaults):
    """A disk fails: its folder cannot be entered."""

    def stop_server(self) -> None:
        self.folder.rename(self.folder.with_name("away"))
        self.folder.symlink_to(self.folder)

    def start_server(self) -> None:
        self.folder.unlink()
        self.folder.with_name("away").rename(self.folder)

    def corrupt(self, partition: Partition) -> None:
        (self.folder / "a%2Fgroup" / partition.topic / str(partition.number)).write_text('{"offset": 4')

    def test_a_lock_that_is_held(self) -> None:
        """A lock held by a stopped process causes a named error that the task survives."""
        (partition,) = self.partitions(1)
        with self.store() as store, self.store() as other:
            again(lambda: store.save(partition, 1, ""))
            with other._folder.locked(other._path(partition)), pytest.raises(Transient, match="locked"):  # type: ignore[attr-defined]  # its own store
                store.save(partition, 2, "")


class TestHdfs(OnHdfs, OffsetStoreContract):
    """The contract of offset stores."""


class TestHdfsFaults(OnHdfs, OffsetStoreFaults):
    """What happens when HDFS is unreachable. Restarting it takes too long for a test."""

    @pytest.fixture(autouse=True)
    def _gate(self, _folder: None, hdfs: Hdfs) -> Iterator[None]:
        with Gate(hdfs.port) as self.gate:
            self.url = f"webhdfs://127.0.0.1:{self.gate.port}{self.path}"
            yield

    def stop_server(self) -> None:
        self.gate.close()

    def start_server(self) -> None:
        self.gate.open()

    def freeze_server(self) -> None:
        self.gate.freeze()

    def thaw_server(self) -> None:
        self.gate.thaw()

    def corrupt(self, partition: Partition) -> None:
        self.filesystem.pipe_file(f"{self.path}/a%2Fgroup/{partition.topic}/{partition.number}", b"")

    def test_two_writers(self) -> None:
        """HDFS has no compare-and-set: of two simultaneous writers the older offset may remain until the next save."""
        (partition,) = self.partitions(1)
        with self.store() as owner, self.store() as zombie:
            again(lambda: owner.save(partition, 5, ""))
            with pytest.raises(Fenced):
                again(lambda: zombie.save(partition, 4, ""))


class TestS3(OnS3, OffsetStoreContract):
    def test_a_bucket_that_does_not_exist(self) -> None:
        """A missing bucket is an error rather than a first start."""
        self.url = "s3://not-there/winnow"
        with self.store() as store, pytest.raises(NotUsable):
            store.load([Partition("raw", 0)], stable=True)


class TestS3Faults(OnS3, OffsetStoreFaults):
    """What happens when S3 fails."""

    saves = 8

    def stop_server(self) -> None:
        MOTO[self.address].stop()

    def start_server(self) -> None:
        _serve(int(self.address.rpartition(":")[2]))

    def corrupt(self, partition: Partition) -> None:
        key = f"winnow/a%2Fgroup/{partition.topic}/{partition.number}"
        self.client.put_object(Bucket=self.bucket, Key=key, Body=b'{"offset": "x", "metadata": ""}')


def _no_space(_descriptor: int) -> None:
    raise OSError(28, "No space left on device")
