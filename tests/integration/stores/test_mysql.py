"""The offset store in MySQL, on a real MariaDB."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from app.errors import NotAllowed, NotUsable
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore
from app.offsets.faults import OffsetStoreFaults
from app.offsets.mysql import MySqlOffsets
from app.offsets.testing import OffsetStoreContract
from tests.integration.stores.stage import OnServer
from tests.servers.mariadb import MariaDB


class OnMariaDB(OnServer):
    @pytest.fixture(autouse=True)
    def _server(self, mariadb: MariaDB) -> None:
        self.server = mariadb
        self.options: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": mariadb.port,
            "user": mariadb.user,
            "password": mariadb.password,
            "database": mariadb.database,
        }

    def open_store(self, **options: Any) -> OffsetStore:
        return MySqlOffsets(self.context, **(self.options | options))

    def ask(self, statement: str, *values: object) -> Any:
        """Run a statement as another tool."""
        with closing(pymysql.connect(**self.options, autocommit=True)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall()


class TestMySqlOffsets(OnMariaDB, OffsetStoreContract):
    """The contract of offset stores, and what is specific to MySQL."""

    def test_the_layout(self) -> None:
        """Other tools read one row for each group, topic and partition."""
        partition = Partition(f"raw-{self.group}", 7)
        with self.store() as store:
            store.save(partition, 41, "old")
            store.save(partition, 42, "metadata")

        rows = self.ask("SELECT * FROM winnow_offsets WHERE group_id = %s", self.group)
        assert ((self.group, partition.topic, 7, 42, "metadata at=42"),) == tuple(row[:5] for row in rows)

    def test_names_are_compared_byte_by_byte(self) -> None:
        """Topics whose names differ only in case are two topics, as in Kafka."""
        lower, upper = Partition(f"raw-{self.group}", 0), Partition(f"RAW-{self.group}", 0)
        with self.store() as store:
            store.save(lower, 1, "")
            store.save(upper, 2, "")

            found = store.load([lower, upper], stable=True)

        assert {lower: CommittedOffset(1), upper: CommittedOffset(2)} == found

    def test_a_table_of_another_name(self) -> None:
        """A missing table is created under the configured name, also by several processes at once."""
        (partition,) = self.partitions(1)
        table = f"offsets_{self.group}"
        stores = [self.open_store(table=table) for _ in range(2)]
        for offset, store in enumerate(stores, 1):
            store.save(partition, offset, "")
            store.close()

        assert ((2,),) == self.ask(f"SELECT next_offset FROM `{table}`")

    def test_a_password_in_a_file(self, tmp_path: Path) -> None:
        """The password can come from a file, whose trailing newline is ignored."""
        (partition,) = self.partitions(1)
        (tmp_path / "password").write_text(f"{self.options['password']}\n")

        store = self.open_store(password=None, password_file=str(tmp_path / "password"))

        assert store.load([partition], stable=True) == {}
        store.close()

    @pytest.mark.parametrize(
        ("wrong", "error", "says"),
        [
            ({"password": "wrong"}, NotAllowed, "check the user, password"),
            ({"database": "another"}, NotAllowed, "and privileges"),
            ({"table": "x" * 64}, NotUsable, "Unknown column"),
        ],
    )
    def test_a_refusal_names_its_cause(self, wrong: dict[str, str], error: type[Exception], says: str) -> None:
        """A wrong password, a missing right and a table of another shape are named, and not treated as an outage."""
        (partition,) = self.partitions(1)
        if "table" in wrong:
            self.ask(f"CREATE TABLE IF NOT EXISTS {wrong['table']} (something INT)")

        with pytest.raises(error, match=says):
            self.open_store(**wrong).load([partition], stable=True)


class TestMySqlFaults(OnMariaDB, OffsetStoreFaults):
    """What happens when MariaDB fails."""

    def corrupt(self, partition: Partition) -> None:
        self.ask("UPDATE winnow_offsets SET next_offset = -7 WHERE topic = %s AND partition_id = %s", *partition)
