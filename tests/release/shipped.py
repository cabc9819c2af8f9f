"""What the image ships, read from its lock file and from the same versions of the packages installed here."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import confluent_kafka
import pyspark
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
IMAGE_LOCK = ROOT / "docker/image.lock"
UNNEEDED = ROOT / "docker/unneeded.txt"
"""Patterns of what the image leaves out, below site-packages."""
# The image's machine and Python, which is Debian 12's, for the conditions in the lock.
IMAGE = {"python_version": "3.11", "python_full_version": "3.11.2", "sys_platform": "linux", "platform_system": "Linux"}
PINNED = re.compile(
    r"^(?P<requirement>[A-Za-z0-9][^\s\\]*==[^\\]*?)\s*\\?$(?P<hashes>(?:\n    --hash=\S+(?: \\)?)*)", re.MULTILINE
)
JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.+-]*)\.jar")


@dataclass(frozen=True, slots=True)
class Component:
    """
    One shipped component.

    Args:
        kind: `pypi`, `maven`, or `generic` for a library inside a package.
        name: its name there; for a jar the artifact, after its group if known.
        version: its version; empty if unknown.
        sha256: the possible hashes of its file; for a Python package one for each wheel.
        licences: its licences, in its own words.
        inside: the package that contains it; empty for a package.
    """

    kind: str
    name: str
    version: str
    sha256: tuple[str, ...]
    licences: tuple[str, ...]
    inside: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()


class Differs(Exception):
    """An installed package differs from the lock."""


def components() -> list[Component]:
    """
    Return all that the image ships on top of Debian: Python packages, jars, and libraries inside the packages.

    Raises:
        Differs: a package is missing here or has another version than in the lock. Run `make setup`.
    """
    return sorted([*python_packages(), *libraries(), *jars()], key=lambda each: (each.kind, each.name, each.version))


def python_packages() -> Iterator[Component]:
    """
    Yield the packages of the image's lock that apply to its Python.

    Raises:
        Differs: as above.
    """
    for found in PINNED.finditer(IMAGE_LOCK.read_text("utf-8")):
        requirement = Requirement(found["requirement"])
        marker = requirement.marker
        if marker is not None and not marker.evaluate(IMAGE):
            continue
        hashes = tuple(sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", found["hashes"])))
        (pin,) = requirement.specifier
        here = marker is None or marker.evaluate()
        said = _said_of(requirement.name, pin.version) if here else ()
        yield Component("pypi", requirement.name, pin.version, hashes, said)


def _said_of(name: str, version: str) -> tuple[str, ...]:
    """Return the licences in an installed package's metadata: one expression, or everything it states."""
    try:
        installed = metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise Differs(f"{name} {version} is in docker/image.lock and not installed here: make setup") from error
    if installed.version != version:
        raise Differs(f"docker/image.lock names {name} {version}, and here is {installed.version}: make setup")
    about = installed.metadata
    if "License-Expression" in about:
        return (about["License-Expression"],)
    classifiers = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or [] if "License ::" in each]
    # Some packages put the whole licence text here. A classifier then names the licence.
    words = about.get_all("License") or [""]
    return tuple(classifiers or words[0].splitlines()[:1])


def libraries() -> Iterator[Component]:
    """Yield the shared libraries that wheels ship in folders of their own."""
    installed = Path(confluent_kafka.__file__).parents[1]
    librdkafka, _ = confluent_kafka.libversion()
    for folder in sorted(installed.glob("*.libs")):
        package = folder.name.removesuffix(".libs").replace("_", "-")
        for file in sorted(folder.iterdir()) if package in _names() else ():
            name = file.name.partition("-")[0]
            version = librdkafka if name == "librdkafka" else ""
            yield Component("generic", name, version, (_sha256(file),), (f"library {name}",), package)


def _names() -> set[str]:
    return {each.name for each in python_packages()}


def jars() -> Iterator[Component]:
    """Yield the jars of PySpark that the image keeps."""
    installed = Path(pyspark.__file__).parents[1]
    left_out = unneeded()
    for file in sorted(installed.glob("pyspark/jars/*.jar")):
        if any(fnmatch(str(file.relative_to(installed)), pattern) for pattern in left_out):
            continue
        name = JAR.fullmatch(file.name)
        artifact, version = (name["name"], name["version"]) if name else (file.stem, "")
        group, licences = _of_jar(file, artifact)
        yield Component(
            "maven", f"{group}/{artifact}" if group else artifact, version, (_sha256(file),), licences, "pyspark"
        )


def unneeded() -> Sequence[str]:
    """Return the patterns of what the image leaves out."""
    lines = UNNEEDED.read_text("utf-8").splitlines() if UNNEEDED.is_file() else []
    return [line for line in lines if line and not line.startswith("#")]


def _of_jar(file: Path, artifact: str) -> tuple[str, tuple[str, ...]]:
    """Return the group of a jar, empty if unknown, and the licences in its metadata."""
    with zipfile.ZipFile(file) as jar:
        names = jar.namelist()
        manifest = jar.read("META-INF/MANIFEST.MF").decode(errors="replace") if "META-INF/MANIFEST.MF" in names else ""
        own = [each for each in names if re.fullmatch(rf"META-INF/maven/[^/]+/{re.escape(artifact)}/pom\.xml", each)]
        group = own[0].split("/")[2] if own else ""
        pom = jar.read(own[0]).decode(errors="replace") if own else ""
        words = re.search(r"^Bundle-License: *(.+)", re.sub(r"\r?\n ", "", manifest), re.MULTILINE)
        if words:
            return group, tuple(_without_links(each) for each in words[1].strip().strip('"').split(","))
        if licences := re.search(r"<licenses>.*?</licenses>", pom, re.DOTALL):
            return group, tuple(re.findall(r"<name>\s*(.*?)\s*</name>", licences[0], re.DOTALL))
        texts = [each for each in names if re.fullmatch(r"(META-INF/)?LICEN[CS]E(\.txt|\.md)?", each)]
        return group, tuple(_title(jar.read(each).decode(errors="replace")) for each in texts[:1])


def _without_links(licence: str) -> str:
    """Return an entry of OSGi's Bundle-License without its attributes, such as `;link=…`."""
    return licence.partition(";")[0].strip().strip('"')


def _title(text: str) -> str:
    """Return the first meaningful line of a licence's text."""
    return next((line.strip() for line in text.splitlines() if line.strip(" *#/-")), "")


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
