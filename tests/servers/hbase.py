"""A real HBase in one JVM (master, region server and its own ZooKeeper), and its Thrift server in another."""

from __future__ import annotations

from typing import ClassVar
from xml.sax.saxutils import escape

from app.embedded.jars import fetch_jars, find_java
from tests.servers.bundles import HBASE
from tests.servers.server import Server

JAVA_BASE = ("lang", "nio", "io", "util", "util.concurrent", "lang.reflect", "net")
OPENS = (
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in JAVA_BASE),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
LOGGING = """\
log4j.rootLogger=WARN,C
log4j.appender.C=org.apache.log4j.ConsoleAppender
log4j.appender.C.layout=org.apache.log4j.PatternLayout
log4j.appender.C.layout.ConversionPattern=%d %p %c{1} %m%n
log4j.logger.org.apache.hadoop.hbase.master.HMaster=INFO
"""
READY = "Master has completed initialization"


class HBase(Server):
    title: ClassVar = "HBase 2.6.1"

    def prepare(self) -> None:
        settings = {
            "hbase.cluster.distributed": "false",
            "hbase.rootdir": f"file://{self.folder}/root",
            "hbase.tmp.dir": f"{self.folder}/tmp",
            "hbase.zookeeper.property.dataDir": f"{self.folder}/zookeeper",
            "hbase.zookeeper.property.clientPort": str(self.port),
            "hbase.zookeeper.quorum": "127.0.0.1",
            "hbase.unsafe.stream.capability.enforce": "false",
            "hbase.wal.provider": "filesystem",
            "hbase.localcluster.assign.random.ports": "true",
            "hbase.master.info.port": "-1",
            "hbase.regionserver.info.port": "-1",
            "hbase.thrift.info.port": "-1",
            "hbase.master.ipc.address": "127.0.0.1",
            "hbase.regionserver.ipc.address": "127.0.0.1",
            "hbase.regionserver.handler.count": "5",
            "zookeeper.admin.enableServer": "false",
            # Tests freeze it for longer than the default 10 s, after which it would end its own sessions and then
            # itself.
            "zookeeper.session.timeout": "120000",
            "zookeeper.session.timeout.localHBaseCluster": "120000",
            "hbase.zookeeper.property.maxSessionTimeout": "120000",
        }
        rows = "".join(
            f"<property><name>{k}</name><value>{escape(v)}</value></property>\n" for k, v in settings.items()
        )
        configuration = self.folder / "conf"
        configuration.mkdir()
        (configuration / "hbase-site.xml").write_text(f"<configuration>\n{rows}</configuration>\n")
        (configuration / "log4j.properties").write_text(LOGGING)

    def java(self, heap: str) -> list[str]:
        """Return the command of an HBase program that connects to this one."""
        jars = f"{self.folder / 'conf'}:{fetch_jars(HBASE)}/*"
        return [find_java(), *OPENS, f"-Xmx{heap}", "-XX:TieredStopAtLevel=1", "-cp", jars]

    def command(self) -> list[str]:
        return [*self.java("512m"), "org.apache.hadoop.hbase.master.HMaster", "start"]

    def is_ready(self) -> bool:
        """Return whether the master has set up its tables."""
        return READY in self.said()


class HBaseThrift(Server):
    """HBase's Thrift server, to which Python clients connect."""

    title: ClassVar = "HBase's Thrift server"

    def __init__(self, hbase: HBase) -> None:
        """Choose the port."""
        super().__init__()
        self.hbase = hbase

    def command(self) -> list[str]:
        address = ["-b", "127.0.0.1", "-p", str(self.port), "--infoport", "-1"]
        return [*self.hbase.java("256m"), "org.apache.hadoop.hbase.thrift.ThriftServer", "start", *address]

    def is_ready(self) -> bool:
        return self.listens()
