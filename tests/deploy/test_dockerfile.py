"""The Dockerfile of the image, checked without an engine."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from app import __version__
from app.config.sources import ENV_PREFIX
from tests.deploy.conftest import BIN, DOCKERFILE, ROOT
from tests.support.waiting import PATIENCE

FLUME = DOCKERFILE.with_name("flume.Dockerfile")


def hadolint(dockerfile: Path) -> subprocess.CompletedProcess[str]:
    """Lint a Dockerfile."""
    return subprocess.run([BIN / "hadolint", dockerfile], capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.parametrize("dockerfile", [DOCKERFILE, FLUME], ids=lambda file: file.name)
def test_dockerfile_has_no_finding(dockerfile: Path) -> None:
    """Hadolint reports no finding for any Dockerfile."""
    assert hadolint(dockerfile).stdout == ""
    assert hadolint(dockerfile).returncode == 0


def test_a_careless_dockerfile_has_findings(tmp_path: Path) -> None:
    """The linter reports findings for a bad Dockerfile."""
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN apt-get install curl\n")
    assert hadolint(tmp_path / "Dockerfile").returncode == 1


@pytest.mark.parametrize("dockerfile", [DOCKERFILE, FLUME], ids=lambda file: file.name)
def test_one_line_names_the_base(dockerfile: Path) -> None:
    """The digest is in one place: all stages derive from the first, which is a fixed Debian and never `latest`."""
    first, *others = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", dockerfile.read_text("utf-8"), re.MULTILINE)
    assert others
    assert first[0].partition("@")[0] == "debian:bookworm-slim"
    assert {base for base, _ in others} == {first[1]} == {"base"}


def test_image_has_java_17_and_an_init(final_stage: str) -> None:
    """Spark runs on Java 17 and Debian's own Python, and tini forwards signals."""
    assert re.findall(r"openjdk-(\d+)", final_stage) == ["17"]
    assert 'ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/opt/winnow/entrypoint.sh"]' in final_stage


def test_image_is_not_run_by_root(final_stage: str) -> None:
    """The image's final user is 185, as in Spark's own images, and never root."""
    assert re.findall(r"^USER (.*)$", final_stage, re.MULTILINE) == ["185:185"]


def test_image_carries_no_compiler(final_stage: str) -> None:
    """The image contains only what the service needs: no C compiler, no JDK, no pip."""
    assert not re.search(r"\b(gcc|g\+\+|clang|build-essential|make|\S+-jdk\S*|python3?-(dev|venv|pip))\b", final_stage)
    assert "pip uninstall -y -r docker/build.lock pip" in DOCKERFILE.read_text("utf-8")


def test_image_installs_only_hashed_packages() -> None:
    """Each package from an index is checked against its hash. The wheel is installed without dependencies."""
    text = re.sub(r"\s+", " ", DOCKERFILE.read_text("utf-8").replace("\\\n", " "))
    installs = re.findall(r"pip (?:install|wheel) .*?(?= RUN | COPY | FROM |&&|$)", text)
    assert any(install.startswith("pip install --require-hashes") and "image.lock" in install for install in installs)
    assert all("--require-hashes" in install or "--no-deps" in install for install in installs)
    assert all(
        "--only-binary :all:" in install or "--no-build-isolation" in install or "--no-index" in install
        for install in installs
    )


def pins(lock: str) -> dict[str, str]:
    """Return the hashes of each package in a lock, by name and version."""
    pin = re.compile(r"^(\S+==\S+)(?: ;.*)? \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE)
    return dict(pin.findall((ROOT / lock).read_text("utf-8")))


def test_wheel_is_built_with_the_pins_of_the_tests() -> None:
    """The lock of the image's build agrees with the tests' lock, hash by hash."""
    tested, built = pins("tests/requirements.lock"), pins("docker/build.lock")
    shared = {name: hashes for name, hashes in built.items() if not name.startswith("setuptools==")}
    assert any(name.startswith("hatchling==") for name in shared)
    assert shared.items() <= tested.items()


def test_image_holds_what_is_tested() -> None:
    """The image's lock agrees with the locks of the tests and of a clone, hash by hash."""
    image, tested, clone = (
        pins(f"{lock}.lock") for lock in ("docker/image", "tests/requirements", "docker/requirements")
    )
    assert any(name.startswith("kazoo==") for name in image)
    assert clone.items() <= image.items() <= tested.items()


def test_build_context_holds_every_copied_file() -> None:
    """Each file that the Dockerfile copies exists and is not excluded by .dockerignore."""
    copies = re.findall(r"^COPY (?!--from)(?:--\S+ )*(.*) \S+$", DOCKERFILE.read_text("utf-8"), re.MULTILINE)
    copied = {source for sources in copies for source in sources.split()}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    assert {"app", "parsers", "docker/entrypoint.sh"} <= copied
    assert all((ROOT / source).exists() for source in copied)
    assert copied == allowed


def test_image_overrules_no_file(image_environment: dict[str, str]) -> None:
    """The image's only configuration variable is a default: the status page listens on all addresses of a container."""
    keys = {name: value for name, value in image_environment.items() if name.startswith(ENV_PREFIX)}
    assert {"WINNOW_DEFAULT__HTTP__ADDRESS": "0.0.0.0"} == keys


def test_image_writes_only_below_tmp(image_environment: dict[str, str]) -> None:
    """The image writes only to /tmp, which the manifests mount, so the root can be read-only."""
    environment = image_environment
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environment["NUMBA_CACHE_DIR"].startswith("/tmp/")
    assert environment["SPARK_LOCAL_DIRS"].startswith("/tmp/")


def test_kernels_are_compiled_while_building(final_stage: str, image_environment: dict[str, str]) -> None:
    """The build compiles kernels for any processor into the folder that the entrypoint copies."""
    environment = image_environment
    assert f"NUMBA_CACHE_DIR={environment['BAKED_KERNELS']} winnow parse /opt/winnow/warm-up.log" in final_stage
    bulk = 'python -c "from app.kafka.backend import why_not_bulk as w; exit(w({}) or 0)"'
    assert f"NUMBA_CACHE_DIR={environment['BAKED_KERNELS']} {bulk}" in final_stage
    assert environment["NUMBA_CPU_NAME"] == "generic"
    lines = (ROOT / "docker/warm-up.log").read_text("utf-8").splitlines()
    assert lines
    assert all(len(line.removeprefix("<<<!>>>").split("<<<!>>>,<<<!>>>")) == 15 for line in lines)


def test_each_unneeded_pattern_has_a_reason() -> None:
    """docker/unneeded.txt consists of paragraphs, each a sentence followed by its patterns, without duplicates."""
    header, *paragraphs = (ROOT / "docker/unneeded.txt").read_text("utf-8").strip().split("\n\n")
    patterns = [row for paragraph in paragraphs for row in paragraph.splitlines() if not row.startswith("#")]
    assert header.startswith("# ")
    assert all(re.match(r"# [^\n]+\.\n\S", paragraph) for paragraph in paragraphs)
    assert len(patterns) == len(set(patterns)) > 50
    assert not [row for row in patterns if row.startswith(("/", "..")) or " " in row]


def test_labels_say_what_pyproject_says(final_stage: str) -> None:
    """The image's labels name the project's version and licence. The revision is a build argument."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', final_stage))
    assert (__version__, project["license"]) == (labels["version"], labels["licenses"])
    assert labels["revision"] == "$REVISION"
    assert {"title", "description"} <= labels.keys()
