"""The jars of a JVM program, fetched once into the user's cache by PySpark's own Ivy. Runs on the user's machine."""

from __future__ import annotations

import fcntl
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

from app.errors import NotUsable

OLDEST_JAVA = 17
FETCH_SECONDS = 900


class JavaMissing(NotUsable):
    """No Java that is new enough was found."""


class FetchFailed(NotUsable):
    """Ivy could not fetch the jars."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A set of Maven modules (`organisation:module:revision`) and the folder of the cache that their jars go to."""

    title: str
    folder: str
    size: str
    modules: tuple[str, ...]


# Kafka's own pom leaves out a logging back end: without one the server would die in silence.
KAFKA = Bundle(
    "Apache Kafka 4.3.0",
    "kafka-4.3.0",
    "46 jars",
    ("org.apache.kafka:kafka_2.13:4.3.0", "org.slf4j:slf4j-simple:1.7.36"),
)


def fetch_jars(bundle: Bundle = KAFKA) -> Path:
    """Return the folder of the bundle's jars; the first call fetches them, all or nothing."""
    cache = cache_folder()
    target = cache / bundle.folder
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{bundle.folder}.lock"):
        if not target.is_dir():  # another process may have fetched them while this one waited
            sys.stderr.write(f"fetching {bundle.title} ({bundle.size}, once)\n")
            _fetch(bundle, cache, target)
    return target


def cache_folder() -> Path:
    """Return the folder below the user's cache that is Winnow's."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "winnow"


def find_java() -> str:
    """Return the java program of JAVA_HOME or PATH, or say what is missing."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "JAVA_HOME is not set and PATH has no java"
        message = f"Java {OLDEST_JAVA} or newer is needed: {where}. Install a JRE or set JAVA_HOME."
        raise JavaMissing(message)
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', answer)
    if found is None or int(found[1]) < OLDEST_JAVA:
        version = found[1] if found else "of an unknown version"
        message = f"Java {OLDEST_JAVA} or newer is needed: {java} is Java {version}. Set JAVA_HOME to a newer one."
        raise JavaMissing(message)
    return java


def pyspark_folder() -> Path:
    """Return the folder of the installed PySpark without importing it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        message = "PySpark is not installed in this environment, and its Ivy fetches the jars. Run: make setup"
        raise FetchFailed(message)
    return Path(found.submodule_search_locations[0])


def _fetch(bundle: Bundle, cache: Path, target: Path) -> None:
    """Let Ivy fill a temporary folder and rename it: whoever sees the target sees it whole."""
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{bundle.folder}-") as temporary:
        wanted = Path(temporary, "ivy.xml")
        wanted.write_text(_ivy_module(bundle))
        _ivy(bundle, cache / "ivy", wanted, Path(temporary, "jars"))
        Path(temporary, "jars").rename(target)


def _ivy(bundle: Bundle, home: Path, wanted: Path, into: Path) -> None:
    """Run Ivy with its own cache and settings below ours."""
    ivy = next((pyspark_folder() / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        message = f"No ivy-*.jar in {pyspark_folder() / 'jars'}. Reinstall PySpark: make clean setup"
        raise FetchFailed(message)
    command = [find_java(), f"-Divy.default.ivy.user.dir={home}", "-jar", str(ivy)]
    command += ["-cache", str(home / "cache"), "-ivy", str(wanted), "-confs", "default"]
    command += ["-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        message = f"{bundle.title} could not be fetched within {FETCH_SECONDS} s. Run it again: what has come is kept."
        raise FetchFailed(message) from None
    if done.returncode or not any(into.glob("*.jar")):
        tail = "\n".join(done.stdout.splitlines()[-15:])
        message = f"{bundle.title} could not be fetched. Is Maven Central (or its mirror) reachable? Ivy said:\n{tail}"
        raise FetchFailed(message)


def _ivy_module(bundle: Bundle) -> str:
    """Return the ivy.xml that asks for the bundle's modules with all they need at run time."""
    rows = (module.split(":") for module in bundle.modules)
    wanted = "".join(f'<dependency org="{o}" name="{m}" rev="{r}" conf="*->default"/>' for o, m, r in rows)
    return (
        f'<ivy-module version="2.0"><info organisation="winnow" module="{bundle.folder}"/>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file lock: two processes never fetch at the same time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
