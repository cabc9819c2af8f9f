"""The Dockerfile of the image, checked without an engine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from app import config
from tests.deploy.conftest import BIN, DOCKERFILE, ROOT


def hadolint(dockerfile: Path) -> subprocess.CompletedProcess[str]:
    """Lint a Dockerfile."""
    return subprocess.run([BIN / "hadolint", dockerfile], capture_output=True, text=True, check=False, timeout=60)


def test_dockerfile_has_no_finding() -> None:
    """Hadolint reports no finding for the Dockerfile."""
    assert hadolint(DOCKERFILE).stdout == ""
    assert hadolint(DOCKERFILE).returncode == 0


def test_a_careless_dockerfile_has_findings(tmp_path: Path) -> None:
    """The linter of the test above reports findings for a bad Dockerfile."""
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN apt-get install curl\n")
    assert hadolint(tmp_path / "Dockerfile").returncode == 1


def test_base_images_are_pinned_to_python_and_debian() -> None:
    """Every stage starts from the same Python on the same Debian, never from `latest`."""
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE.read_text("utf-8"), re.MULTILINE)
    assert len(bases) > 1
    assert {base.partition("@")[0] for base in bases} == {"python:3.11-slim-bookworm"}


def test_image_has_java_17_and_an_init(final_stage: str) -> None:
    """Spark runs on Java 17, and tini forwards signals."""
    assert re.findall(r"openjdk-(\d+)", final_stage) == ["17"]
    assert 'ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/opt/winnow/entrypoint.sh"]' in final_stage


def test_image_is_not_run_by_root(final_stage: str) -> None:
    """The image's last user is 185, as in Spark's own images, and never 0."""
    assert re.findall(r"^USER (.*)$", final_stage, re.MULTILINE) == ["185:185"]


def test_image_carries_no_compiler(final_stage: str) -> None:
    """The image holds nothing that the service does not need: no C compiler, no JDK, no pip."""
    assert not re.search(r"\b(gcc|g\+\+|clang|build-essential|make|\S+-jdk\S*|python3?-dev)\b", final_stage)
    assert "pip uninstall -y -r docker/build.lock pip" in DOCKERFILE.read_text("utf-8")


def test_image_installs_only_hashed_packages() -> None:
    """Each package that comes from an index is checked against its hash; the wheel adds none."""
    text = re.sub(r"\s+", " ", DOCKERFILE.read_text("utf-8").replace("\\\n", " "))
    installs = re.findall(r"pip (?:install|wheel) .*?(?= RUN | COPY | FROM |&&|$)", text)
    assert any(install.startswith("pip install --require-hashes") and "image.lock" in install for install in installs)
    assert all("--require-hashes" in install or "--no-deps" in install for install in installs)
    assert all(
        "--only-binary :all:" in install or "--no-build-isolation" in install or "--no-index" in install
        for install in installs
    )


def pins(lock: str) -> dict[str, str]:
    """Return the hashes of each package of a lock, by its name and version."""
    pin = re.compile(r"^(\S+==\S+)(?: ;.*)? \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE)
    return dict(pin.findall((ROOT / lock).read_text("utf-8")))


def test_wheel_is_built_with_the_pins_of_the_tests() -> None:
    """The lock of the image's build agrees with the lock of the tests, hash by hash."""
    tested, built = pins("tests/requirements.lock"), pins("docker/build.lock")
    shared = {name: hashes for name, hashes in built.items() if not name.startswith("setuptools==")}
    assert any(name.startswith("hatchling==") for name in shared)
    assert shared.items() <= tested.items()


def test_image_holds_what_is_tested() -> None:
    """What the image runs with has the pins of the tests, hash by hash, and those of a clone."""
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


def test_image_sets_no_configuration_key(image_environment: dict[str, str]) -> None:
    """No environment variable of the image is a key of the configuration."""
    assert "NUMBA_CACHE_DIR" in image_environment
    assert not [name for name in image_environment if name.startswith(config.ENV_PREFIX)]


def test_image_writes_only_below_tmp(image_environment: dict[str, str]) -> None:
    """The image writes only to /tmp, which the manifests mount, so the root may be read-only."""
    environment = image_environment
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environment["NUMBA_CACHE_DIR"].startswith("/tmp/")
    assert environment["SPARK_LOCAL_DIRS"].startswith("/tmp/")


def test_kernels_are_compiled_while_building(final_stage: str, image_environment: dict[str, str]) -> None:
    """The build fills the folder of kernels that the entrypoint copies, for any processor."""
    environment = image_environment
    assert f"NUMBA_CACHE_DIR={environment['BAKED_KERNELS']} winnow parse /opt/winnow/warm-up.log" in final_stage
    bulk = 'python -c "from app.kafka.backend import why_not_bulk as w; exit(w({}) or 0)"'
    assert f"NUMBA_CACHE_DIR={environment['BAKED_KERNELS']} {bulk}" in final_stage
    assert environment["NUMBA_CPU_NAME"] == "generic"
    lines = (ROOT / "docker/warm-up.log").read_text("utf-8").splitlines()
    assert lines
    assert all(len(line.removeprefix("<<<!>>>").split("<<<!>>>,<<<!>>>")) == 15 for line in lines)
