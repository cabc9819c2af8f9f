"""
A store in HBase, reached through its Thrift server (version 1): rows with one column per partition.

    TOPIC:GROUP:now             →   offsets:0 = 1042   offsets:1 = 977   metadata:0 = {"1042": "winnow/2 …"}   …
    TOPIC:GROUP:1795251648256   →   offsets:0 = 911    offsets:1 = 850   at that time (milliseconds since the epoch),
                                    metadata:0 = {"911": "winnow/2 topic=…"}   with only the topic's id

A reversed scan from `TOPIC:GROUP:~` finds the row `now` first or, without one, the newest of the history. So Winnow can
take over a group that another job kept in such a table; such rows have all of a topic's partitions, so they are read
only for what the row `now` lacks. The history gets a row a minute while offsets move. All cells expire after the
table's time to live.

An offset never goes back: checkAndPut, which is atomic in HBase, stores it only if the row `now` still holds the offset
that was read. It stores a single column. So the metadata is stored first, under the same condition, together with that
of the currently stored offset: whatever happens in between, the stored offset has its metadata. Two concurrent writers
can lose metadata, but never an offset. Only the first save of a group from another job, which is compared with its
newest row, is not atomic.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import happybase
from Hbase_thrift import AlreadyExists, IllegalArgument, Mutation
from Hbase_thrift import IOError as HBaseError
from thriftpy2.thrift import TException

from app.errors import NotAllowed, NotUsable, Transient, Unreachable
from app.headers import whole_number
from app.model import CommittedOffset, Partition, numbers_by_topic
from app.offsets.connections import Connections
from app.offsets.contract import PastOffsets, StoreContext
from app.offsets.failures import refuse_to_go_back, saving, stored_offset
from app.offsets.metadata import OffsetMetadata
from app.offsets.options import Options

SECONDS = 6.0
"""The timeout of a connection or an answer."""
CREATE_SECONDS = 20.0
"""The timeout of the table's creation."""
TRIES = 5
"""How often to try to store an offset that other writers keep changing."""
HISTORY_SECONDS = 60.0
"""The least time between two rows of the history."""
OFFSETS, METADATA = "offsets", "metadata"
NOW = "now"
DAY = 86_400

Cells = Mapping[bytes, bytes]


class HBaseOffsets:
    """The offsets of a group in a table of HBase; `time_to_live_days` is for a table that is created here."""

    transactional = False

    def __init__(
        self,
        context: StoreContext,
        *,
        host: str,
        port: int = 9090,
        table: str = "winnow_offsets",
        time_to_live_days: int = 30,
        transport: str = "buffered",
        protocol: str = "binary",
    ) -> None:
        options = Options()
        self._group = context.group.replace("%", "%25").replace(":", "%3A")
        address = options.text("host", host), options.number("port", port, most=65535)
        self._where = ":".join(map(str, address))
        self._table = options.text("table", table)
        if not re.fullmatch(r"(\w+:)?\w[\w.-]*", self._table):
            options.wrong("table must be a name of letters, digits, and characters of _ . -, after NAMESPACE: if any")
        self._days = options.number("time.to.live.days", time_to_live_days, most=24_000)
        self._connect = functools.partial(
            happybase.Connection,
            *address,
            transport=options.choice("transport", transport, ("buffered", "framed")),
            protocol=options.choice("protocol", protocol, ("binary", "compact")),
        )
        options.raise_problems()
        self._connections = Connections(lambda: self._connect(timeout=int(SECONDS * 1000)))
        self._has_table = False
        self._lock = threading.Lock()
        self._next_history: dict[str, float] = {}

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:  # noqa: ARG002  # outside Kafka's transactions, every offset is stable
        found: dict[Partition, CommittedOffset] = {}
        for topic, wanted in numbers_by_topic(partitions).items():
            with self._asking(f"reading the offsets of {topic}") as table:
                now = self._row(topic, NOW)
                columns = [column for number in wanted for column in _columns(number)]
                rows = [(now, table.row(now, columns=columns))]
                if any(column not in rows[0][1] for column, _ in map(_columns, wanted)):
                    rows += self._scan(table, topic, 2, "~")  # the row `now` again, and the newest of the history
            for number in wanted:
                at = next((at for row, cells in rows if (at := _stored(row, cells, number))), None)
                if at is not None:
                    found[Partition(topic, number)] = at
        return found

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        row = self._row(partition.topic, NOW)
        column, beside = _columns(partition.number)
        for _ in range(TRIES):
            with saving(partition, offset), self._asking(f"storing the offset of {partition}") as table:
                cells = table.row(row, columns=[column, beside])
            stored = _stored(row, cells, partition.number)
            if stored is None:
                with saving(partition, offset):
                    stored = self.load([partition], stable=True).get(partition)
            refuse_to_go_back(partition, stored, offset)
            with saving(partition, offset), self._asking(f"storing the offset of {partition}") as table:
                expected = column, cells.get(column)
                if _put_if(table, row, expected, beside, _metadata(stored, offset, metadata)) and _put_if(
                    table, row, expected, column, str(offset).encode()
                ):
                    self._keep_history(table, partition.topic)
                    return
        raise Transient(partition, f"other writers changed the offset {TRIES} times in a row", offset)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        column, beside = _columns(partition.number)
        cells = {column: str(offset).encode(), beside: _metadata(None, offset, metadata)}
        with saving(partition, offset), self._asking(f"storing the offset of {partition}") as table:
            table.put(self._row(partition.topic, NOW), cells)
            self._keep_history(table, partition.topic)

    def history(self, topic: str, most: int, until: int | None = None) -> Sequence[PastOffsets]:
        with self._asking(f"reading the history of {topic}") as table:
            rows = list(self._scan(table, topic, most, ":" if until is None else _moment(until)))
        return [_past(row, cells) for row, cells in rows]

    def close(self) -> None:
        self._connections.close()

    def _scan(self, table: Any, topic: str, most: int, last: str) -> Iterator[tuple[str, Cells]]:  # noqa: ANN401  # happybase has no types
        """Yield a topic's rows whose last part is at most `last`, the largest first."""
        begin, end = self._row(topic, last), self._row(topic, "")
        for row, cells in table.scan(
            row_start=begin, row_stop=end, reverse=True, limit=most, batch_size=min(most, 100)
        ):
            yield row.decode(), cells

    def _keep_history(self, table: Any, topic: str) -> None:  # noqa: ANN401
        """Copy the current offsets into the history unless its newest row is recent enough."""
        with self._lock:
            if time.monotonic() < self._next_history.get(topic, 0.0):
                return
            self._next_history[topic] = time.monotonic() + HISTORY_SECONDS
        now = time.time()
        # Rows later than a minute from now are of a clock that was ahead. They must not stop the history until then.
        youngest = next(self._scan(table, topic, 1, _moment(int((now + HISTORY_SECONDS) * 1000))), None)
        if youngest and int(youngest[0].rpartition(":")[2]) > (now - HISTORY_SECONDS) * 1000:
            return
        # What another job kept last may have partitions that we have not saved yet, and only two rows are read.
        cells = {**(youngest[1] if youngest else {}), **table.row(self._row(topic, NOW))}
        offsets = {column: value for column, value in cells.items() if _is_offset(column)}
        table.put(self._row(topic, _moment(int(now * 1000))), offsets | _topic_ids(cells))

    def _row(self, topic: str, part: str) -> str:
        return f"{topic}:{self._group}:{part}"

    @contextlib.contextmanager
    def _asking(self, doing: str) -> Iterator[Any]:
        """Lend the table, and translate the client's errors."""
        try:
            self._make_table()
            with self._connections.one() as connection:
                yield connection.table(self._table)
        except HBaseError as error:
            raise self._meaning(error.message.decode(errors="replace"), doing) from error
        except IllegalArgument as error:
            raise NotUsable(f"HBase rejected the request while {doing}: {error}", "check the offset store") from error
        except (TException, OSError, EOFError) as error:
            cause = f"HBase's Thrift server at {self._where} is not responding while {doing}: {error}"
            raise Unreachable(cause) from error

    def _make_table(self) -> None:
        """Create the table if it is missing; several threads and processes may try at once."""
        if self._has_table:
            return
        with self._connections.one() as connection:
            try:
                connection.table(self._table).row(NOW)  # asks a region, which works while the master is away
            except HBaseError as error:
                if b"TableNotFound" not in error.message:
                    raise
                self._create_table()
        self._has_table = True

    def _create_table(self) -> None:
        family = {"max_versions": 1, "time_to_live": self._days * DAY}
        with contextlib.closing(self._connect(timeout=int(CREATE_SECONDS * 1000))) as connection:
            # AlreadyExists is said only of one that is there when the request arrives. Of two that arrive together,
            # the second fails with the master's error (ThriftHBaseServiceHandler.createTable).
            try:
                connection.create_table(self._table, {OFFSETS: family, METADATA: family})
            except AlreadyExists:
                pass
            except HBaseError as error:
                if b"TableExistsException" not in error.message:
                    raise

    def _meaning(self, said: str, doing: str) -> NotUsable | Unreachable:
        """Translate an error of HBase itself, whose text begins with the exception's class."""
        first = said.splitlines()[0] if said else "no reason was given"
        if "AccessDenied" in first:
            cure = "grant the Thrift server's user access to the table"
            return NotAllowed(f"HBase denied access while {doing}: {first}", cure)
        if "TableNotFound" in first:
            self._has_table = False
        if "NoSuchColumnFamily" in first:
            cure = f"the table {self._table} needs the column families {OFFSETS} and {METADATA}"
            return NotUsable(f"HBase rejected the request while {doing}: {first}", cure)
        return Unreachable(f"HBase is unavailable while {doing}: {first}")


def _put_if(table: Any, row: str, expected: tuple[bytes, bytes | None], column: bytes, value: bytes) -> bool:  # noqa: ANN401
    """Store a column if another column of the row has its expected value (None: missing); return whether it did."""
    mutation = Mutation(column=column, value=value)
    return bool(table.connection.client.checkAndPut(table.name, row.encode(), *expected, mutation, {}))


def _metadata(stored: CommittedOffset | None, offset: int, metadata: str) -> bytes:
    """Return the metadata of an offset about to be stored, together with that of the stored one."""
    before = {str(stored.offset): stored.metadata} if stored else {}
    return json.dumps(before | {str(offset): metadata}, ensure_ascii=False).encode()


def _moment(milliseconds: int) -> str:
    """Return a time as the last part of a row, in a form that sorts by time."""
    return f"{milliseconds:013d}"


def _columns(number: int) -> tuple[bytes, bytes]:
    """Return a partition's two columns: offset and metadata."""
    return f"{OFFSETS}:{number}".encode(), f"{METADATA}:{number}".encode()


def _is_offset(column: bytes) -> bool:
    family, _, number = column.decode(errors="replace").partition(":")
    return family == OFFSETS and whole_number(number) is not None


def _stored(row: str, cells: Cells, number: int) -> CommittedOffset | None:
    column, beside = _columns(number)
    if column not in cells:
        return None
    text = cells[column].decode(errors="replace")
    try:
        metadata = json.loads(cells.get(beside, b"{}")).get(text, "")
    except (ValueError, AttributeError):  # not ours
        metadata = ""
    return stored_offset(text, metadata, f"{OFFSETS}:{number} of the row {row} in HBase")


def _known(row: str, cells: Cells) -> dict[int, CommittedOffset]:
    """Return the offsets in a row by partition, without what is none."""
    numbers = sorted(int(column.partition(b":")[2]) for column in cells if _is_offset(column))
    return {number: at for number in numbers if (at := _stored(row, cells, number)) is not None and not at.corrupt}


def _topic_ids(cells: Cells) -> dict[bytes, bytes]:
    """Return metadata cells with only the topic id of each offset in the row `now`."""
    return {
        _columns(number)[1]: _metadata(None, at.offset, str(OffsetMetadata(topic_id, at.offset)))
        for number, at in _known(NOW, cells).items()
        if (topic_id := OffsetMetadata.of(at).topic_id)
    }


def _past(row: str, cells: Cells) -> PastOffsets:
    known = _known(row, cells)
    topic_ids = {number: OffsetMetadata.of(at).topic_id for number, at in known.items()}
    return PastOffsets(int(row.rpartition(":")[2]), {number: at.offset for number, at in known.items()}, topic_ids)
