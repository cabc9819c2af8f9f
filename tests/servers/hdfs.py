"""
A real HDFS with one data node, in one JVM, accessed through WebHDFS.

Hadoop has no program that starts one this small, and a JRE cannot compile one. So the JVM runs PySpark's Py4J gateway,
through which Hadoop's own MiniDFSCluster is started.
"""

from __future__ import annotations

from typing import ClassVar

from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]  # ships no types

from app.embedded.jars import fetch_jars, find_java
from tests.servers.bundles import HDFS
from tests.servers.server import Server
from tests.support.spark import JARS

USER = "winnow"


class Hdfs(Server):
    title: ClassVar = "HDFS 3.5.0"
    port_count: ClassVar = 3

    @property
    def namenode(self) -> str:
        """The `hdfs://` address, for Hadoop's own clients."""
        return f"hdfs://127.0.0.1:{self.ports[1]}"

    def command(self) -> list[str]:
        # PySpark's jars contain the same version of Hadoop's client. They must come first: the minicluster's jar lacks
        # it.
        jars = f"{fetch_jars(HDFS)}/*:{JARS}/*"
        java = [find_java(), "-Xmx384m", "-XX:TieredStopAtLevel=1", f"-DHADOOP_USER_NAME={USER}", "-cp", jars]
        return [*java, "py4j.GatewayServer", str(self.ports[2])]

    def start(self) -> None:
        """Start the gateway, then HDFS through it. A later start finds the files of the earlier one."""
        is_new = self._is_new
        super().start()
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=self.ports[2]))
        try:
            hadoop = gateway.jvm.org.apache.hadoop.hdfs
            settings = hadoop.HdfsConfiguration()
            settings.setBoolean("dfs.permissions.enabled", False)
            settings.set("dfs.namenode.safemode.extension", "0")  # a restarted name node would be read-only for 30 s
            folder = gateway.jvm.java.io.File(str(self.folder / "data"))
            cluster = hadoop.MiniDFSCluster.Builder(settings, folder).numDataNodes(1).format(is_new)
            cluster.nameNodePort(self.ports[1]).nameNodeHttpPort(self.port).build().waitClusterUp()
        finally:
            gateway.close()

    def is_ready(self) -> bool:
        """Return whether the gateway listens."""
        return self.listens(self.ports[2])
