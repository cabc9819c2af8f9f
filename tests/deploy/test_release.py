"""The contents of a release, and its reproducible build."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from app import __version__
from parsers.plugins import PRODUCT
from tests.release import audit, build, licences, shipped
from tests.release.sbom import sbom
from tests.release.shipped import ROOT, Component

EPOCH = 1_700_000_000


@pytest.fixture(scope="module")
def components() -> list[Component]:
    """Read what the image ships. It takes seconds to hash each jar."""
    return shipped.components()


class TestMaterials:
    def test_all_that_the_lock_names_is_there(self, components: list[Component]) -> None:
        """The image's components include the lock's packages, Spark's jars and librdkafka, but no omitted jar."""
        names = {each.name for each in components}

        lock = shipped.IMAGE_LOCK.read_text("utf-8")
        # colorama is only for Windows.
        assert {"colorama"} >= set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)) - names
        assert {"librdkafka", "org.apache.spark/spark-core_2.13"} <= names
        assert not [name for name in names if "hive" in name or "mllib" in name]
        assert all(re.fullmatch("[0-9a-f]{64}", sha256) for each in components for sha256 in each.sha256)
        assert all(each.sha256 for each in components)

    def test_it_is_valid_and_the_same_each_time(self, components: list[Component]) -> None:
        """The SBOM is valid by CycloneDX's schema and reproducible. Other content gets another serial number."""
        text = sbom(components, EPOCH)

        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
        assert text == sbom(components, EPOCH)
        found = yaml.safe_load(text)
        assert found["serialNumber"] != yaml.safe_load(sbom(components[1:], EPOCH))["serialNumber"]
        assert "2023-11-14T22:13:20+00:00" == found["metadata"]["timestamp"]

    def test_another_version_than_in_the_lock_is_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Licences come from the packages installed here, so a version that differs from the image's is an error."""
        lock = tmp_path / "image.lock"
        lock.write_text("click==1.0 \\\n    --hash=sha256:" + 64 * "0" + "\n")
        monkeypatch.setattr(shipped, "IMAGE_LOCK", lock)

        with pytest.raises(shipped.Differs, match=r"names click 1\.0, and here is"):
            list(shipped.python_packages())


class TestLicences:
    def test_each_is_known_and_allowed(self, components: list[Component]) -> None:
        """Every component has a known licence that allows shipping it."""
        assert [] == licences.not_allowed(components)

    @pytest.mark.parametrize(
        ("said", "allowed"),
        [
            ("MIT", True),
            ("MIT OR GPL-3.0-only", True),
            ("MIT AND GPL-3.0-only", False),
            ("AGPL-3.0-only", False),
            ("BSD-2-Clause AND Apache-2.0 WITH LLVM-exception", True),
        ],
    )
    def test_a_licence_that_forbids_it_is_found(self, said: str, allowed: bool) -> None:
        """A forbidden licence is found. If the user may choose, one allowed licence suffices."""
        one = Component("pypi", "one", "1", (), (said,))

        assert allowed is not bool(licences.not_allowed([one]))
        assert [] == licences.not_allowed([replace(one, licences=(said, "MIT"))])

    @pytest.mark.parametrize("said", [(), ("ask the author",)])
    def test_a_licence_that_nobody_knows_is_found(self, said: tuple[str, ...]) -> None:
        """An unknown licence is neither allowed nor forbidden: it raises an error for a person to resolve."""
        with pytest.raises(licences.Unknown, match=r"one 1 .* write it into"):
            licences.not_allowed([Component("pypi", "one", "1", (), said)])


FLAW = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2"]}


@pytest.mark.parametrize(
    ("packages", "code", "words"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], audit.CLEAN, "1 packages: nothing is known"),
        (
            [{"name": "a", "version": "1", "vulns": [FLAW]}],
            audit.VULNERABLE,
            r"a 1: PYSEC-1 \(CVE-1\), mended in 2",
        ),
        (
            [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"}],
            audit.UNANSWERED,
            "NOT AUDITED: .* tells nothing of 1 packages of 2, b for one",
        ),
    ],
)
def test_what_is_not_known_is_not_clean(packages: list[dict[str, Any]], code: int, words: str) -> None:
    """An audit that the registry did not answer has an exit code of its own, never 0."""
    found, lines = audit.verdict({"dependencies": packages})

    assert code == found
    assert re.match(words, lines[-1])


class TestBuild:
    def test_wheel_and_sdist_are_the_same_wherever_they_are_built(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wheel and sdist are identical in another folder, with other timestamps, file modes and umask."""
        first = build.python(tmp_path / "first", EPOCH)
        build.sources(copy := tmp_path / "another folder")
        for file in (each for each in copy.rglob("*") if each.is_file()):
            file.chmod(file.stat().st_mode & 0o700)
            os.utime(file, (1, 1))
        (copy / "app/junk.py").touch()
        subprocess.run(["git", "init", "--quiet", str(copy)], check=True)
        subprocess.run(["git", "-C", str(copy), "add", "--force", *build.tracked_files(ROOT, ["."])], check=True)
        monkeypatch.setattr(build, "ROOT", copy)
        before = os.umask(0o077)
        try:
            second = build.python(tmp_path / "second", EPOCH)
        finally:
            os.umask(before)

        assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]
        with zipfile.ZipFile(first[0]) as wheel:
            folder = f"winnow_kafka-{__version__}.dist-info"
            assert "Name: winnow-kafka" in wheel.read(f"{folder}/METADATA").decode().splitlines()
            assert "winnow = app.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode().splitlines()

    def test_archives_are_the_same_wherever_they_are_made(self, tmp_path: Path) -> None:
        """Archives contain no user, only the release's timestamp, and only two file modes."""
        script = tmp_path / "script.sh"
        made = []
        for mode, time in ((0o700, 1), (0o755, 2)):
            script.write_text("true\n")
            script.chmod(mode)
            os.utime(script, (time, time))
            made.append(build.archive(tmp_path / f"{time}.tgz", {"in/script.sh": script}, EPOCH).read_bytes())

        assert made[0] == made[1]
        with tarfile.open(tmp_path / "1.tgz") as tar:
            (entry,) = tar.getmembers()
        told = entry.name, entry.mode, entry.mtime, entry.uid, entry.uname
        assert ("in/script.sh", 0o755, EPOCH, 0, "") == told

    def test_a_release_is_whole(
        self, tmp_path: Path, components: list[Component], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each file name contains the version, and `sha256sum --check` accepts the list."""
        monkeypatch.setattr(build, "components", lambda: components)
        made = build.release(tmp_path, EPOCH)

        assert sorted(tmp_path.iterdir()) == sorted(made)
        *files, sums = made
        assert all(__version__ in file.name for file in files)
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", sums.name], cwd=tmp_path, check=True)
        with tarfile.open(tmp_path / f"winnow-{__version__}.tgz") as chart:
            about = chart.extractfile("winnow/Chart.yaml")
            assert about is not None
            told = yaml.safe_load(about.read())
        assert (__version__, __version__) == (told["version"], told["appVersion"])
        with tarfile.open(tmp_path / f"winnow-image-{__version__}.tar.gz") as recipe:
            names = {name.partition("/")[2] for name in recipe.getnames()}
        copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "docker/Dockerfile").read_text(), re.MULTILINE)
        wanted = {name for line in copied for name in line.split()} | {"docker/Dockerfile"}
        assert all(name in names or any(each.startswith(f"{name}/") for each in names) for name in wanted), wanted


def test_nobody_is_told_to_install_a_strangers_package() -> None:
    """The docs install winnow-kafka with its extras, because `winnow` on the package index is another project."""
    told = re.compile(
        r"(?<![\w-])winnow\[[a-z\d,]+\]|pip install ['\"]?winnow(?!-kafka)|dist/winnow-|\bwinnow \(pyproject"
    )
    lines = [
        f"{name}: {line}"
        for name, file in build.tracked_files(
            ROOT, ["README.md", "DESIGN.md", "docs", "app", "parsers", "docker", "k8s", "tests"]
        ).items()
        if file.suffix in (".py", ".md", ".toml", ".yaml", ".sh", ".lock") or file.name == "Dockerfile"
        for line in file.read_text("utf-8").splitlines()
        if told.search(line)
    ]

    assert [] == [line for line in lines if not line.startswith("tests/deploy/test_release.py")]
    assert PRODUCT == tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["name"]


def test_everything_bears_one_version() -> None:
    """Files that cannot read the version from app/__init__.py repeat it."""
    told = subprocess.run(
        [sys.executable, "-m", "app.cli", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert __version__ in told
    found = {
        name: set(re.findall(r"winnow:(\d+\.\d+\.\d+)|image\.version=\"(\d[\d.]+)\"", file.read_text("utf-8")))
        for name, file in build.tracked_files(ROOT, ["README.md", "docs", "docker", "k8s"]).items()
        if file.suffix in ("", ".md", ".yaml", ".sh") or file.name == "Dockerfile"
    }
    assert {"docker/Dockerfile", "docker/compose.yaml"} <= {name for name, versions in found.items() if versions}
    assert {__version__} == {version for versions in found.values() for pair in versions for version in pair if version}
    chart = yaml.safe_load((build.CHART / "Chart.yaml").read_text("utf-8"))
    assert (__version__, __version__) == (chart["version"], chart["appVersion"])
