"""
Downloads the jars of a JVM program from Maven Central into the user's cache, once, and checks the hash of each.

kafka.lock pins Kafka's jars. `python -m tests.support.ivy` prints a new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Self
from urllib.error import HTTPError
from urllib.request import urlopen

from rich.console import Console
from rich.progress import track

from app.errors import NotUsable

OLDEST_JAVA = 17
REPOSITORY = "https://repo1.maven.org/maven2"
CONNECTIONS = 8
ANSWER_SECONDS = 60
# How long to wait before each further attempt: one name that is not resolved must not end a build.
PAUSES = (1.0, 5.0, 15.0)
# The answers below 500 that may be another one then: a request that took too long, and too many of them.
FOR_NOW = (408, 429)
LOCK = Path(__file__).with_name("kafka.lock")


class JavaMissing(NotUsable):
    """No Java that is recent enough was found."""


class FetchFailed(NotUsable):
    """The jars could not be downloaded."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """
    A set of jars and their folder in the cache.

    Args:
        size: the download size to show.
        hashes: the SHA-256 of each jar, by its Maven module (`organisation:module:revision`).
    """

    title: str
    folder: str
    size: str
    hashes: Mapping[str, str]

    @classmethod
    def locked(cls, lock: Path, title: str, folder: str, size: str) -> Self:
        """Return the bundle that a lock file pins, with a row `module sha256:…` for each jar."""
        hashes = dict(row.split(" sha256:") for row in lock.read_text().splitlines())
        return cls(title, folder, f"{len(hashes)} jars, {size}", hashes)


KAFKA = Bundle.locked(LOCK, "Apache Kafka 4.3.0", "kafka-4.3.0", "44 MB")


def fetch_jars(bundle: Bundle = KAFKA) -> Path:
    """Return the folder of the bundle's jars. The first call downloads all of them or fails."""
    cache = cache_folder()
    target = cache / bundle.folder
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{bundle.folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():  # another process may have fetched them in the meantime
            sys.stderr.write(f"downloading {bundle.title} ({bundle.size}, only once)\n")
            partial_folder = cache / f".{bundle.folder}"  # kept after a failure: the next attempt reuses its jars
            partial_folder.mkdir(exist_ok=True)
            console, size = Console(stderr=True), len(bundle.hashes)
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                jars = pool.map(partial(_download_jar, partial_folder), bundle.hashes, bundle.hashes.values())
                list(track(jars, "jars", size, console=console, transient=True, disable=not console.is_terminal))
            partial_folder.rename(target)
    return target


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "winnow"


def find_java() -> str:
    """Return the java executable of JAVA_HOME or PATH; raise JavaMissing without a suitable one."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "JAVA_HOME is not set and PATH has no java"
        raise JavaMissing(f"Java {OLDEST_JAVA} or newer is required: {where}. Install a JRE or set JAVA_HOME.")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', answer)
    if found is None or int(found[1]) < OLDEST_JAVA:
        version = found[1] if found else "of an unknown version"
        message = f"Java {OLDEST_JAVA} or newer is required: {java} is Java {version}. Set JAVA_HOME to a newer one."
        raise JavaMissing(message)
    return java


def _download_jar(folder: Path, module: str, pinned: str) -> None:
    """Download one jar, unless an earlier attempt has done so. Write it only if its hash is right."""
    organisation, name, revision = module.split(":")
    jar = folder / f"{name}-{revision}.jar"
    if jar.exists() and hashlib.sha256(jar.read_bytes()).hexdigest() == pinned:
        return
    url = f"{REPOSITORY}/{organisation.replace('.', '/')}/{name}/{revision}/{jar.name}"
    content = _answer(url)
    if (found := hashlib.sha256(content).hexdigest()) != pinned:
        raise FetchFailed(f"{module} is not the jar that {LOCK.name} pins: its SHA-256 is {found} instead of {pinned}.")
    jar.write_bytes(content)


def _answer(url: str) -> bytes:
    pauses = iter(PAUSES)
    while True:
        try:
            with urlopen(url, timeout=ANSWER_SECONDS) as answer:  # noqa: S310  # an https URL
                return bytes(answer.read())
        except (OSError, HTTPException) as error:
            is_final = isinstance(error, HTTPError) and error.code < 500 and error.code not in FOR_NOW
            if is_final or (pause := next(pauses, None)) is None:
                raise FetchFailed(f"Could not download {url} ({error}). Is Maven Central reachable?") from error
            time.sleep(pause)
