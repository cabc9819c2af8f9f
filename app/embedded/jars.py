"""
Fetches the jars of a JVM program into the user's cache, once, with PySpark's own Ivy.

Kafka's jars are pinned by kafka.lock. `python -m app.embedded.jars` prints a new one from what Ivy resolves.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from rich.console import Console
from rich.progress import Progress

from app.errors import NotUsable

OLDEST_JAVA = 17
FETCH_SECONDS = 900
LOCK = Path(__file__).with_name("kafka.lock")
# By default Ivy also requests poms, parents and checksums, one by one: 49 s for Kafka's 46 jars instead of 11.
PINNED_ONLY = (
    '<ivysettings><settings defaultResolver="central"/><resolvers><ibiblio name="central" m2compatible="true"'
    ' usepoms="false" useMavenMetadata="false" checksums=""/></resolvers></ivysettings>'
)


class JavaMissing(NotUsable):
    """No Java that is recent enough was found."""


class FetchFailed(NotUsable):
    """Ivy could not fetch the jars."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """
    A set of Maven modules (`organisation:module:revision`) and the cache folder of their jars.

    Args:
        title: the name to show.
        folder: the name of its cache folder.
        size: the download size to show.
        modules: all modules if there are hashes, else those whose dependencies Ivy resolves.
        hashes: the SHA-256 of each module's jar, in the order of the modules.
    """

    title: str
    folder: str
    size: str
    modules: tuple[str, ...]
    hashes: tuple[str, ...] = ()


def _kafka() -> Bundle:
    rows = [row.split(" sha256:") for row in LOCK.read_text().splitlines()]
    modules, hashes = zip(*rows, strict=True)
    return Bundle("Apache Kafka 4.3.0", "kafka-4.3.0", f"{len(modules)} jars, 44 MB", modules, hashes)


KAFKA = _kafka()
# Kafka's pom has no logging back end; without one, the server would fail silently.
UNPINNED = Bundle(
    KAFKA.title,
    "kafka-unpinned",
    KAFKA.size,
    ("org.apache.kafka:kafka_2.13:4.3.0", "org.slf4j:slf4j-simple:1.7.36"),
)


def fetch_jars(bundle: Bundle = KAFKA) -> Path:
    """Return the folder of the bundle's jars. The first call fetches all of them or fails."""
    cache = cache_folder()
    target = cache / bundle.folder
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{bundle.folder}.lock"):
        if not target.is_dir():  # another process may have fetched them in the meantime
            sys.stderr.write(f"downloading {bundle.title} ({bundle.size}, only once)\n")
            _fetch(bundle, cache, target)
    return target


def cache_folder() -> Path:
    """Return Winnow's folder in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "winnow"


def find_java() -> str:
    """Return the java executable of JAVA_HOME or PATH; raise JavaMissing without a suitable one."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "JAVA_HOME is not set and PATH has no java"
        message = f"Java {OLDEST_JAVA} or newer is required: {where}. Install a JRE or set JAVA_HOME."
        raise JavaMissing(message)
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', answer)
    if found is None or int(found[1]) < OLDEST_JAVA:
        version = found[1] if found else "of an unknown version"
        message = f"Java {OLDEST_JAVA} or newer is required: {java} is Java {version}. Set JAVA_HOME to a newer one."
        raise JavaMissing(message)
    return java


def pyspark_folder() -> Path:
    """Return the folder of the installed PySpark without importing it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        message = "PySpark, whose Ivy fetches the jars, is not installed in this environment. Run: make setup"
        raise FetchFailed(message)
    return Path(found.submodule_search_locations[0])


def _fetch(bundle: Bundle, cache: Path, target: Path) -> None:
    """Let Ivy fill a temporary folder, then rename it, so that the target is always complete."""
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{bundle.folder}-") as temporary:
        folder = Path(temporary)
        (folder / "ivy.xml").write_text(_ivy_module(bundle))
        (folder / "ivysettings.xml").write_text(PINNED_ONLY)
        _ivy(bundle, cache / "ivy", folder)
        _check_hashes(bundle, folder / "jars")
        (folder / "jars").rename(target)


def _ivy(bundle: Bundle, home: Path, folder: Path) -> None:
    """Run Ivy with its own cache and settings below ours; the jars go to the folder's `jars`."""
    ivy = next((pyspark_folder() / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        message = f"No ivy-*.jar in {pyspark_folder() / 'jars'}. Reinstall PySpark: make clean setup"
        raise FetchFailed(message)
    command = [find_java(), f"-Divy.default.ivy.user.dir={home}", "-jar", str(ivy)]
    command += ["-settings", str(folder / "ivysettings.xml")] if bundle.hashes else []
    # Ivy's cache also remembers poms, so each of the two settings has its own cache.
    command += ["-cache", str(home / ("pinned" if bundle.hashes else "cache"))]
    command += ["-ivy", str(folder / "ivy.xml"), "-confs", "default"]
    command += ["-retrieve", f"{folder / 'jars'}/[artifact]-[revision](-[classifier]).[ext]"]
    code, said = _watch(command, len(bundle.hashes) or None)
    if code or not any((folder / "jars").glob("*.jar")):
        tail = "\n".join(said[-15:])
        message = f"Could not download {bundle.title}. Is Maven Central (or its mirror) reachable? Ivy said:\n{tail}"
        raise FetchFailed(message)


def _watch(command: list[str], jars: int | None) -> tuple[int, list[str]]:
    """Run Ivy with a progress bar (on a terminal); return its exit code and output."""
    said = []
    console = Console(stderr=True)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        bar = progress.add_task("jars", total=jars)
        deadline = Timer(FETCH_SECONDS, ivy.kill)
        deadline.start()
        try:
            for line in ivy.stdout or ():
                said.append(line.rstrip())
                progress.advance(bar, "[SUCCESSFUL ]" in line)
        except BaseException:  # includes Ctrl-C: Ivy must not outlive us
            ivy.kill()
            raise
        finally:
            deadline.cancel()
    if ivy.returncode < 0:
        said.append(f"(stopped after {FETCH_SECONDS} s; the next attempt reuses finished downloads)")
    return ivy.returncode, said


def _check_hashes(bundle: Bundle, jars: Path) -> None:
    for module, expected in zip(bundle.modules, bundle.hashes, strict=bool(bundle.hashes)):
        _, name, revision = module.split(":")
        found = _sha256(jars / f"{name}-{revision}.jar")
        if found != expected:
            message = f"{module} is not the jar that {LOCK.name} pins: its SHA-256 is {found} instead of {expected}."
            raise FetchFailed(message)


def _sha256(jar: Path) -> str:
    return hashlib.sha256(jar.read_bytes()).hexdigest()


def _ivy_module(bundle: Bundle) -> str:
    """Return an ivy.xml that requests the bundle's modules, and their runtime dependencies if they are not pinned."""
    rows = (module.split(":") for module in bundle.modules)
    alone = ' transitive="false"' if bundle.hashes else ""
    wanted = "".join(f'<dependency org="{o}" name="{m}" rev="{r}" conf="*->default"{alone}/>' for o, m, r in rows)
    return (
        f'<ivy-module version="2.0"><info organisation="winnow" module="{bundle.folder}"/>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


def _lock_rows() -> Iterator[str]:
    """Yield the rows of kafka.lock: the jars resolved by Ivy, named by their places in its cache, with their hashes."""
    wanted = {jar.name: _sha256(jar) for jar in fetch_jars(UNPINNED).glob("*.jar")}
    for jar in sorted((cache_folder() / "ivy" / "cache").glob("*/*/*/*.jar")):
        organisation, module = jar.parts[-4:-2]
        if jar.name in wanted:
            revision = jar.stem.removeprefix(f"{module}-")
            yield f"{organisation}:{module}:{revision} sha256:{wanted[jar.name]}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file lock, so that only one process fetches at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.stdout.write("".join(f"{row}\n" for row in _lock_rows()))
