"""A real ZooKeeper, from PySpark's own jars."""

from __future__ import annotations

from typing import ClassVar

from app.embedded.jars import find_java
from tests.servers.server import Server
from tests.support.spark import JARS

PROPERTIES = """\
tickTime=500
maxSessionTimeout=60000
dataDir={folder}/data
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
"""


class ZooKeeper(Server):
    title: ClassVar = "ZooKeeper 3.9"

    def prepare(self) -> None:
        (self.folder / "zoo.cfg").write_text(PROPERTIES.format(folder=self.folder, port=self.port))

    def command(self) -> list[str]:
        java = [find_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*"]
        return [*java, "org.apache.zookeeper.server.ZooKeeperServerMain", str(self.folder / "zoo.cfg")]

    def is_ready(self) -> bool:
        return b"Zookeeper version" in self.ask(b"srvr")
