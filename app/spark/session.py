"""Starts Spark as the service needs it. Settings of spark-submit and the user have priority."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from app.errors import SparkFailed
from app.events import Event
from app.secrets import shown_property
from app.spark.properties import FIXED, JAVA_OPTIONS

# How often a task may lose its Python worker within one round. The service survives a failed round anyway.
TASK_FAILURES = 8

DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "winnow",
    "spark.master": "local[*]",
    "spark.task.maxFailures": str(TASK_FAILURES),
    # On Kubernetes and YARN, Spark ends an application that loses more executors than this. The default is two for each
    # executor over the application's whole life: with two executors, a service would end at its fifth eviction. But if
    # an executor is lost every six seconds for ten minutes, something is broken, and the driver must show it by ending.
    "spark.executor.maxNumFailures": "100",
    "spark.executor.failuresValidityInterval": "10m",
    "spark.ui.showConsoleProgress": "false",
    # Workers are forked from a daemon that has already loaded the parser's kernels, so a new one is ready at once.
    "spark.python.daemon.module": "app.spark.daemon",
    # Chunks are allocated and freed in megabytes: keep that memory instead of asking the kernel for clean pages again.
    # That saves 0.4 of 4.1 CPU-seconds per million records (make bench).
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    # Nothing here uses linear algebra; its threads would only take CPU time from ours.
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    # Data on its way to a task may contain a secret, so Spark must not write it to disk in clear text.
    "spark.io.encryption.enabled": "true",
    # A cancelled task may be stuck in a C call: find it and end its worker.
    "spark.task.reaper.enabled": "true",
    "spark.task.reaper.killTimeout": "60s",
}


def start(wanted: Mapping[str, str], *, submitted: bool, stderr: int | None = None) -> SparkContext:
    """
    Start Spark, or join a `submitted` one, whose settings have priority over `wanted`. Raises SparkFailed.

    A JVM that starts here writes its standard error to the file descriptor `stderr`; by default ours.
    """
    try:
        properties = {**DEFAULTS, **wanted}
        # Only a running JVM knows spark-submit's settings, and only a running JVM may receive a secret: at its start,
        # all properties would be process arguments.
        arguments = None if submitted else SparkConf().setAll(list(_arguments(properties)))
        if SparkContext._gateway is None:  # noqa: SLF001
            gateway = launch_gateway(arguments, {"stderr": stderr})  # type: ignore[no-untyped-call]  # ships no types for it
            SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
        conf = SparkConf()
        for key, value in properties.items():
            conf.setIfMissing(key, value)
        _fix(conf)
        conf.set("spark.master", retrying(conf.get("spark.master") or "local[*]"))
        context = SparkContext.getOrCreate(conf)
    except Exception as error:
        raise SparkFailed(f"Spark did not start: {_brief(error)}") from error
    context.setLogLevel(conf.get("spark.log.level", "ERROR"))
    return context


def _arguments(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the properties that may become process arguments of a JVM. Its Java options always do."""
    for name, value in properties.items():
        if name in JAVA_OPTIONS or shown_property("spark", name, value) == value:
            yield name, value


def _fix(conf: SparkConf) -> None:
    """Set the properties that only Winnow may set, and log where this overrides another setting."""
    for name, fixed in FIXED.items():
        found = conf.get(name)
        if found not in (None, fixed.value):
            Event.SPARK_PROPERTY_OVERRIDDEN.log(property=name, found=found, used=fixed.value, why=fixed.reason)
        conf.set(name, fixed.value)


def retrying(master: str) -> str:
    """Make a local Spark retry lost tasks as a cluster does: `local[2]` fails at the first, `local[2,8]` does not."""
    if master == "local":
        return f"local[1,{TASK_FAILURES}]"
    return re.sub(r"^local\[(\d+|\*)\]$", rf"local[\1,{TASK_FAILURES}]", master)


def _brief(error: Exception) -> str:
    text = error.getMessage() if isinstance(error, PySparkException) else str(error)
    return (text or type(error).__name__).splitlines()[0]
