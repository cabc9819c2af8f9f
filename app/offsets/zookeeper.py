"""
A store in ZooKeeper: one node per partition, which holds only a decimal number, as older tools expect.

    /consumers/GROUP/offsets/TOPIC/PARTITION            →   1042
    /consumers/GROUP/offsets/TOPIC/PARTITION/metadata   →   1042 1042 winnow/2 …

The child holds its node's number, the next offset to read, and the metadata. Both nodes change in one ZooKeeper
transaction, conditional on the version of the first, so a concurrent writer cannot move the offset back. If another
tool changes only the number, the number counts, and the child is ignored because it names another one.

With `position: start` the number is the start of the last committed batch, for tools that expect that. Winnow itself
resumes at the end of that batch, which the child names, or at a number that another tool wrote.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_acl, make_digest_acl

from app.errors import NotAllowed, Transient, Unreachable
from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from app.offsets.failures import refuse_to_go_back, saving, stored_offset
from app.offsets.options import Options

SECONDS = 4.0
"""The timeout of a connection or an answer."""
TRIES = 10
"""How often to try to store an offset whose node other writers keep changing."""
OFFSETS = "/consumers/{group}/offsets"
"""Where consumers before Kafka 0.9 keep a group's offsets."""
METADATA = "metadata"

# Kazoo would log each connection attempt. Winnow logs outages itself.
SILENT = logging.getLogger("winnow.kazoo")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


class Stored(NamedTuple):
    """
    What ZooKeeper holds for a partition.

    Args:
        number: the node's number; -1 if it is not a number.
        committed: the offset that node and child give together.
        agrees: whether the child, if there is one, names the node's number.
    """

    number: int
    committed: CommittedOffset
    version: int
    has_child: bool
    agrees: bool


class ZooKeeperOffsets:
    """The offsets of a group in ZooKeeper. Only the user may write, if there is one, and anyone can read."""

    transactional = False

    def __init__(
        self,
        context: StoreContext,
        *,
        hosts: str,
        root: str | None = None,
        namespace: str = "",
        position: str = "end",
        username: str | None = None,
        password: str | None = None,
        password_file: str | None = None,
    ) -> None:
        options = Options()
        self._hosts = options.text("hosts", hosts)
        self._at_start = options.choice("position", position, ("end", "start")) == "start"
        group = context.group.replace("%", "%25").replace("/", "%2F")
        group = group.replace(".", "%2E") if group in (".", "..") else group  # in a path, ZooKeeper refuses both
        above = f"/{options.text('namespace', namespace).strip('/')}" if namespace else ""
        if root is None:
            self._folder = above + OFFSETS.format(group=group)
        else:
            self._folder = f"{above}/{options.text('root', root).strip('/')}".rstrip("/") + f"/{group}"
        user = None if username is None else options.text("username", username)
        secret = options.secret("password", password, password_file)
        if bool(user) != bool(secret):
            options.wrong("username and password must be set together")
        options.raise_problems()
        self._access: dict[str, Any] = {}
        if user:
            acl = [make_digest_acl(user, secret, all=True), make_acl("world", "anyone", read=True)]
            self._access = {"auth_data": [("digest", f"{user}:{secret}")], "default_acl": acl}
        self._client: tuple[KazooClient, threading.Event] | None = None
        self._lock = threading.Lock()

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:  # noqa: ARG002  # outside Kafka's transactions, every offset is stable
        with self._asking("reading offsets") as client:
            asked = {each: self._ask(client, each) for each in partitions}
            found = {each: self._settled(client, each, answer()) for each, answer in asked.items()}
        return {partition: stored.committed for partition, stored in found.items() if stored is not None}

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        self._store(partition, offset, metadata, may_go_back=False)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        self._store(partition, offset, metadata, may_go_back=True)

    def close(self) -> None:
        with self._lock:
            started, self._client = self._client, None
        if started is not None:
            _end(started[0])

    def _store(self, partition: Partition, offset: int, metadata: str, *, may_go_back: bool) -> None:
        for _ in range(TRIES):
            with saving(partition, offset), self._asking(f"storing the offset of {partition}") as client:
                stored = self._settled(client, partition, self._ask(client, partition)())
                if not may_go_back:
                    refuse_to_go_back(partition, stored and stored.committed, offset)
                number = self._number(stored, offset)
                if self._write(client, partition, stored, number, f"{number} {offset} {metadata}"):
                    return
        raise Transient(partition, f"other writers changed its node {TRIES} times in a row", offset)

    def _number(self, stored: Stored | None, offset: int) -> int:
        """Return the number for the node: the end of the batch that ends here, or its start."""
        if not self._at_start or stored is None or stored.committed.corrupt or stored.committed.offset > offset:
            return offset
        return stored.committed.offset if stored.committed.offset < offset else stored.number

    def _write(self, client: Any, partition: Partition, stored: Stored | None, number: int, beside: str) -> bool:  # noqa: ANN401  # kazoo has no types
        """Write node and child together if the node is unchanged since it was read; return whether it was."""
        path, data = self._path(partition), str(number).encode()
        change = client.transaction()
        if stored is None:
            client.ensure_path_async(path.rpartition("/")[0]).get(timeout=SECONDS)
            change.create(path, data)
        else:
            change.set_data(path, data, version=stored.version)
        if stored is None or not stored.has_child:
            change.create(f"{path}/{METADATA}", beside.encode())
        else:
            change.set_data(f"{path}/{METADATA}", beside.encode())
        failures = [each for each in change.commit_async().get(timeout=SECONDS) if isinstance(each, Exception)]
        changed = BadVersionError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency
        for failure in failures:
            if not isinstance(failure, changed):
                raise failure
        return not failures

    def _settled(self, client: Any, partition: Partition, stored: Stored | None) -> Stored | None:  # noqa: ANN401
        """Read node and child again while they disagree because the node has changed between the two."""
        while stored is not None and not stored.agrees:
            again = _value(client.get_async(self._path(partition)))
            if again is not None and again[1].version == stored.version:
                break
            stored = self._ask(client, partition)()
        return stored

    def _ask(self, client: Any, partition: Partition) -> Callable[[], Stored | None]:  # noqa: ANN401
        """Request a node and its child; the result waits for both, so that the requests for many partitions overlap."""
        path = self._path(partition)
        node, child = client.get_async(path), client.get_async(f"{path}/{METADATA}")
        return lambda: _stored(path, _value(node), _value(child))

    def _path(self, partition: Partition) -> str:
        return f"{self._folder}/{partition.topic}/{partition.number}"

    @contextlib.contextmanager
    def _asking(self, doing: str) -> Iterator[Any]:
        """Lend a connected client, and translate its errors."""
        client, connected = self._started()
        try:
            _wait_for(connected)
            yield client
        except (AuthFailedError, NoAuthError, InvalidACLError) as error:
            cure = "check the username and password of the offset store, and the access control lists of its nodes"
            cause = f"ZooKeeper denied access while {doing} below {self._folder}: {_said(error)}"
            raise NotAllowed(cause, cure) from error
        except (KazooException, KazooTimeoutError, OSError) as error:
            self._drop(client)
            raise Unreachable(f"ZooKeeper at {self._hosts} is not responding while {doing}: {_said(error)}") from error

    def _started(self) -> tuple[KazooClient, threading.Event]:
        """Return the client, and what is set while it is connected: threads that wait for that wait together."""
        with self._lock:
            if self._client is None:
                client = KazooClient(self._hosts, timeout=10, logger=SILENT, **self._access)
                self._client = client, client.start_async()
            return self._client

    def _drop(self, client: KazooClient) -> None:
        """
        Reconnect with the next call: requests queued for a server that did not answer must never arrive.

        Another thread may have dropped the client already, and its successor may be well.
        """
        with self._lock:
            if self._client is None or self._client[0] is not client:
                return
            self._client = None
        threading.Thread(target=_end, args=(client,), daemon=True).start()  # it waits for the client's own threads


def _wait_for(connected: threading.Event) -> None:
    if not connected.wait(SECONDS):
        raise KazooTimeoutError("no server accepts a connection")


def _end(client: KazooClient) -> None:
    with contextlib.suppress(Exception):  # a broken client may fail again
        client.stop()
        client.close()


def _value(asked: Any) -> tuple[bytes, Any] | None:  # noqa: ANN401
    """Wait for a node's data and state; None if there is no node."""
    try:
        value: tuple[bytes, Any] = asked.get(timeout=SECONDS)
    except NoNodeError:
        return None
    return value


def _stored(path: str, node: tuple[bytes, Any] | None, child: tuple[bytes, Any] | None) -> Stored | None:
    if node is None:
        return None
    data, state = node
    text = data.decode(errors="replace").strip()
    committed = stored_offset(text, "", f"the node {path} in ZooKeeper")
    number = -1 if committed.corrupt else committed.offset
    agrees = child is None
    if child is not None:
        same, end, metadata = [*child[0].decode(errors="replace").split(" ", 2), "", ""][:3]
        agrees = same == text
        if agrees and not committed.corrupt:
            committed = stored_offset(end, metadata, f"the node {path}/{METADATA} in ZooKeeper")
    return Stored(number, committed, state.version, child is not None, agrees)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
