"""
A store in MySQL or MariaDB: one table with a row for each group, topic and partition.

    SELECT * FROM winnow_offsets   →   group_id | topic | partition_id | next_offset | metadata | updated_at

An upsert stores an offset only if it is not smaller than the stored one. The same transaction reads the row back while
the upsert still locks it: a larger offset shows that another owner continued.
"""

from __future__ import annotations

import contextlib
import functools
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping

import pymysql
from pymysql.constants import CR, ER
from pymysql.cursors import Cursor

from app.errors import NotAllowed, NotUsable, Unreachable
from app.model import CommittedOffset, Partition, numbers_by_topic
from app.offsets.connections import Connections
from app.offsets.contract import StoreContext
from app.offsets.failures import refuse_to_go_back, saving, stored_offset, tied
from app.offsets.options import Options

SECONDS = 4
"""The timeout of a connection or an answer."""

# Names are compared byte by byte, as in Kafka; a topic name has at most 249 characters.
CREATE = """
CREATE TABLE IF NOT EXISTS {table} (
  group_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  topic VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  partition_id INT NOT NULL,
  next_offset BIGINT NOT NULL,
  metadata TEXT CHARACTER SET utf8mb4 NOT NULL,
  updated_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
  PRIMARY KEY (group_id, topic, partition_id)
) ENGINE = InnoDB
"""
UPSERT = """
INSERT INTO {table} (group_id, topic, partition_id, next_offset, metadata) VALUES (%s, %s, %s, %s, %s)
ON DUPLICATE KEY UPDATE
"""
# Assignments run from left to right and see the earlier ones, so next_offset must come last.
SAVE = f"""{UPSERT}
  metadata = IF(next_offset BETWEEN 0 AND VALUES(next_offset), VALUES(metadata), metadata),
  updated_at = IF(next_offset BETWEEN 0 AND VALUES(next_offset), CURRENT_TIMESTAMP(3), updated_at),
  next_offset = IF(next_offset BETWEEN 0 AND VALUES(next_offset), VALUES(next_offset), next_offset)
"""
# REPLACE would need the right to delete.
RESET = f"""{UPSERT}
  metadata = VALUES(metadata), updated_at = CURRENT_TIMESTAMP(3), next_offset = VALUES(next_offset)
"""
LOAD = """
SELECT topic, partition_id, next_offset, metadata FROM {table} WHERE group_id = %s AND topic = %s AND partition_id IN %s
"""

REFUSED = frozenset(
    {
        ER.ACCESS_DENIED_ERROR,
        ER.DBACCESS_DENIED_ERROR,
        ER.TABLEACCESS_DENIED_ERROR,
        ER.COLUMNACCESS_DENIED_ERROR,
        ER.HOST_NOT_PRIVILEGED,
    }
)
NO_ANSWER = frozenset(
    {
        0,  # PyMySQL's code if the server closed the connection
        CR.CR_CONNECTION_ERROR,
        CR.CR_CONN_HOST_ERROR,
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_UNKNOWN_HOST,
        ER.CON_COUNT_ERROR,
        ER.TOO_MANY_USER_CONNECTIONS,
        ER.USER_LIMIT_REACHED,
        ER.OUTOFMEMORY,
        ER.OUT_OF_RESOURCES,
        ER.NET_READ_ERROR,
        ER.NET_READ_INTERRUPTED,
        ER.NET_ERROR_ON_WRITE,
        ER.NET_WRITE_INTERRUPTED,
        ER.SERVER_SHUTDOWN,
        ER.NORMAL_SHUTDOWN,
        ER.LOCK_DEADLOCK,
        ER.LOCK_WAIT_TIMEOUT,
        ER.QUERY_INTERRUPTED,
        ER.QUERY_TIMEOUT,
        ER.STATEMENT_TIMEOUT,  # MariaDB's
        ER.DISK_FULL,
        ER.RECORD_FILE_FULL,
        ER.OPTION_PREVENTS_STATEMENT,  # read-only, such as a replica that is about to become the primary
        ER.UNKNOWN_COM_ERROR,  # a Galera node that joins, or has lost its cluster
        1927,  # MariaDB: the connection was killed
        3169,  # MySQL: the session was killed
        4031,  # MySQL: the server has closed an idle connection
        9001,  # ProxySQL: no server answers
    }
)


class MySqlOffsets:
    """The offsets of a group in a table of MySQL or MariaDB; with `ssl_ca`, connections are encrypted and verified."""

    transactional = False

    def __init__(
        self,
        context: StoreContext,
        *,
        host: str,
        user: str,
        database: str,
        port: int = 3306,
        password: str | None = None,
        password_file: str | None = None,
        table: str = "winnow_offsets",
        ssl_ca: str | None = None,
    ) -> None:
        options = Options()
        self._group = context.group
        address = options.text("host", host), options.number("port", port, most=65535)
        self._where = ":".join(map(str, address))
        connect = functools.partial(
            pymysql.connect,
            host=address[0],
            port=address[1],
            user=options.text("user", user),
            password=options.secret("password", password, password_file),
            database=options.text("database", database),
            ssl_ca=None if ssl_ca is None else options.text("ssl.ca", ssl_ca),
            ssl_verify_cert=None if ssl_ca is None else True,
            charset="utf8mb4",
            # The default level also locks gaps between rows, so concurrent inserts of neighbours could deadlock.
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            connect_timeout=SECONDS,
            read_timeout=SECONDS,
            write_timeout=SECONDS,
        )
        self._table = options.text("table", table)
        if not re.fullmatch(r"[\w$-]{1,64}", self._table):
            options.wrong("table must be a name of at most 64 letters, digits, and characters of _ $ -")
        options.raise_problems()
        self._connections = Connections(connect)
        self._has_table = False

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:  # noqa: ARG002  # outside Kafka's transactions, every offset is stable
        found: dict[Partition, CommittedOffset] = {}
        for topic, wanted in numbers_by_topic(partitions).items():
            with self._asking(f"reading the offsets of {topic}") as cursor:
                cursor.execute(self._sql(LOAD), (self._group, topic, wanted))
                for _, number, offset, metadata in cursor.fetchall():
                    found[Partition(topic, number)] = self._stored(offset, metadata)
        return found

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        with saving(partition, offset), self._asking(f"storing the offset of {partition}") as cursor:
            cursor.execute(self._sql(SAVE), (self._group, *partition, offset, tied(offset, metadata)))
            cursor.execute(self._sql(LOAD), (self._group, partition.topic, [partition.number]))
            ((_, _, stored, beside),) = cursor.fetchall()
        refuse_to_go_back(partition, self._stored(stored, beside), offset)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        with saving(partition, offset), self._asking(f"storing the offset of {partition}") as cursor:
            cursor.execute(self._sql(RESET), (self._group, *partition, offset, tied(offset, metadata)))

    def close(self) -> None:
        self._connections.close()

    def _sql(self, statement: str) -> str:
        return statement.format(table=f"`{self._table}`")

    def _stored(self, offset: int, metadata: str) -> CommittedOffset:
        return stored_offset(str(offset), metadata, f"next_offset in the table {self._table}")

    @contextlib.contextmanager
    def _asking(self, doing: str) -> Iterator[Cursor]:
        """Lend a cursor inside one transaction, and translate the client's errors."""
        try:
            with self._connections.one() as connection:
                with connection.cursor() as cursor:
                    self._make_table(cursor)
                    yield cursor
                connection.commit()
        except (pymysql.Error, OSError, RuntimeError) as error:
            raise self._meaning(error, doing) from error

    def _make_table(self, cursor: Cursor) -> None:
        """Create the table if it is missing; a user without the right needs an existing table."""
        if not self._has_table:
            cursor.execute("SHOW TABLES LIKE %s", (self._table.replace("_", r"\_"),))
            if not cursor.fetchone():
                cursor.execute(self._sql(CREATE))
            self._has_table = True

    def _meaning(self, error: Exception, doing: str) -> NotUsable | Unreachable:
        code, said = ([*error.args, "", ""])[:2] if error.args else (0, "")
        said = said or str(error)
        if isinstance(error, RuntimeError):  # PyMySQL lacks a package for the server's authentication method
            return NotUsable(
                f"MySQL at {self._where} cannot be reached while {doing}: {error}", "pip install 'PyMySQL[rsa]'"
            )
        if isinstance(error, OSError):  # PyMySQL wraps those of the network; a rotated file may be there soon
            return Unreachable(f"ssl.ca of the offset store cannot be read while {doing}: {error}")
        if isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
            cure = "set ssl.ca of the offset store to the certificates that its server's is signed with"
            return NotAllowed(f"MySQL at {self._where} is not trusted while {doing}: {said}", cure)
        if code in REFUSED:
            cure = "check the user, password and privileges of the offset store"
            return NotAllowed(f"MySQL at {self._where} denied access while {doing}: {said}", cure)
        if code == ER.NO_SUCH_TABLE:  # dropped since: the next call creates it, and the driver puts back its offsets
            self._has_table = False
        if code in {ER.NO_SUCH_TABLE, *NO_ANSWER} or isinstance(error, pymysql.InterfaceError):
            return Unreachable(f"MySQL at {self._where} is not responding while {doing}: {said}")
        return NotUsable(f"MySQL at {self._where} rejected the request while {doing}: {said}", "check the offset store")
