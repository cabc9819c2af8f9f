"""A real HBase in one JVM (master, region server and its ZooKeeper) and its Thrift server in another."""

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
    port_count: ClassVar = 2
    start_seconds: ClassVar = 120

    def prepare(self) -> None:
        settings = {
            "hbase.cluster.distributed": "false",
            "hbase.rootdir": f"file://{self.folder}/root",
            "hbase.tmp.dir": f"{self.folder}/tmp",
            "hbase.zookeeper.property.dataDir": f"{self.folder}/zookeeper",
            "hbase.zookeeper.property.clientPort": str(self.ports[1]),
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
        }
        rows = "".join(
            f"<property><name>{k}</name><value>{escape(v)}</value></property>\n" for k, v in settings.items()
        )
        configuration = self.folder / "conf"
        configuration.mkdir()
        (configuration / "hbase-site.xml").write_text(f"<configuration>\n{rows}</configuration>\n")
        (configuration / "log4j.properties").write_text(LOGGING)

    def commands(self) -> list[list[str]]:
        java = [find_java(), *OPENS, "-XX:TieredStopAtLevel=1", "-cp", f"{self.folder / 'conf'}:{fetch_jars(HBASE)}/*"]
        thrift = ["org.apache.hadoop.hbase.thrift.ThriftServer", "start", "-b", "127.0.0.1", "-p", str(self.port)]
        return [
            [*java, "-Xmx512m", "org.apache.hadoop.hbase.master.HMaster", "start"],
            [*java, "-Xmx256m", *thrift, "--infoport", "-1"],
        ]

    def is_ready(self) -> bool:
        """Return whether the master has set up its tables and the Thrift server listens."""
        return READY in (self.folder / "server-1.log").read_text(errors="replace") and self.listens()
