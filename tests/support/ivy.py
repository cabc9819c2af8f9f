"""
Fetches jars and what their poms ask for with PySpark's own Ivy, unpinned, into the user's cache.

`python -m tests.support.ivy` prints a new kafka.lock.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.embedded.jars import FetchFailed, cache_folder, find_java
from tests.support.spark import JARS

FETCH_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Modules:
    """Maven modules (`organisation:module:revision`) and the cache folder of their jars and dependencies."""

    folder: str
    modules: tuple[str, ...]


def kafka(version: str) -> Modules:
    """Return the server. Its pom has no logging back end; without one, it would fail silently."""
    modules = f"org.apache.kafka:kafka_2.13:{version}", "org.slf4j:slf4j-simple:1.7.36"
    return Modules(f"kafka-{version}-unpinned", modules)


KAFKA = kafka("4.3.0")


def resolved(wanted: Modules) -> Path:
    """Return the folder of the jars. The first call fetches all of them or fails."""
    target = cache_folder() / wanted.folder
    if not target.is_dir():
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f".{wanted.folder}-") as folder:
            _run_ivy(wanted, Path(folder))
            Path(folder, "jars").rename(target)
    return target


def _run_ivy(wanted: Modules, folder: Path) -> None:
    (ivy,) = JARS.glob("ivy-*.jar")
    (folder / "ivy.xml").write_text(_description(wanted))
    home = cache_folder() / "ivy"
    command = [find_java(), f"-Divy.default.ivy.user.dir={home}", "-jar", str(ivy), "-cache", str(home / "cache")]
    command += ["-ivy", str(folder / "ivy.xml"), "-confs", "default"]
    command += ["-retrieve", f"{folder / 'jars'}/[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    if done.returncode or not any((folder / "jars").glob("*.jar")):
        message = f"Could not download {wanted.folder}. Ivy said:\n{done.stdout[-2_000:]}"
        raise FetchFailed(message)


def _description(wanted: Modules) -> str:
    rows = (module.split(":") for module in wanted.modules)
    dependencies = "".join(f'<dependency org="{o}" name="{m}" rev="{r}" conf="*->default"/>' for o, m, r in rows)
    return (
        f'<ivy-module version="2.0"><info organisation="winnow" module="{wanted.folder}"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def lock_rows() -> Iterator[str]:
    """Yield the rows of kafka.lock: the jars resolved by Ivy, named by their places in its cache, with their hashes."""
    wanted = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in resolved(KAFKA).glob("*.jar")}
    for jar in sorted((cache_folder() / "ivy" / "cache").glob("*/*/*/*.jar")):
        organisation, module = jar.parts[-4:-2]
        if jar.name in wanted:
            revision = jar.stem.removeprefix(f"{module}-")
            yield f"{organisation}:{module}:{revision} sha256:{wanted[jar.name]}"


if __name__ == "__main__":
    sys.stdout.write("".join(f"{row}\n" for row in lock_rows()))
