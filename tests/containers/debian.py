"""Builds and runs the image with mmdebstrap, buildah and crun, next to an embedded broker. Needs root on Debian."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.embedded.broker import Broker, Cluster, HeldPorts
from tests.conftest import QUICK_JAVA, STEADY
from tests.containers.contract import BUILD_SECONDS, CONFIG, ROOT, RUN_SECONDS, SERVICES, STOP_SECONDS, Ended
from tests.support.waiting import until

SCRIPT = Path(__file__).with_name("build.sh")
# In namespaces of its own, so that mounts and processes of the build end with it, even if it is killed.
ALONE = (
    "unshare",
    *("--mount", "--propagation", "private"),
    *("--pid", "--fork", "--kill-child", "--mount-proc"),
)
# As in an engine, each container has its own layer, where crun creates the mount points for files.
MOUNT = """
mount -t tmpfs none "$1" && mkdir "$1/upper" "$1/work" &&
mount -t overlay -o "lowerdir=$0,upperdir=$1/upper,workdir=$1/work" image "$1" && shift && exec "$@"
"""
# Hide the cgroups from crun, which fails on machines that have both versions. Without cgroups it needs none.
WITHOUT_CGROUPS = ("sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$0" "$@"')
NEEDED = ("mmdebstrap", "buildah", "crun", "unshare")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"
MOUNTS = [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
    {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "mode=1777"]},
    {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "ro"]},
]


def why_not_debian() -> str:
    """Return what is missing in one line, or an empty string."""
    missing = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    if missing:
        return f"Debian's tools do not build it either: {', '.join(missing)} not installed"
    return "" if os.geteuid() == 0 else "Debian's tools do not build it either: they need root"


@contextmanager
def image_of_debian() -> Iterator[DebianImage]:
    """Build the image and start Kafka. Remove both at the end."""
    with built(ROOT) as folder, Broker(properties=STEADY, java=QUICK_JAVA) as kafka:
        yield DebianImage(folder, kafka)


@contextmanager
def built(checkout: Path) -> Iterator[Path]:
    """Build a checkout's Dockerfile. Return the folder with the output of `build.sh` and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="winnow-image-"))
    try:
        with (folder / "build.log").open("wb") as log:
            command = [*ALONE, str(SCRIPT), str(folder), str(checkout)]
            own = os.environ | {"PYTHON": sys.executable}
            done = subprocess.run(command, stdout=log, stderr=log, check=False, timeout=BUILD_SECONDS, env=own)
        if done.returncode:
            sys.stderr.write((folder / "build.log").read_text(errors="replace")[-10_000:])
            done.check_returncode()
        (folder / "rootfs").mkdir()
        yield folder
    finally:
        _remove(folder)


def with_image(folder: Path, *command: str) -> list[str]:
    """Return the prefix of a command that sees the image's files in the folder's `rootfs`. Its writes are discarded."""
    layers, root = (folder / "layers").read_text(), str(folder / "rootfs")
    return [*ALONE[:4], "sh", "-c", MOUNT, layers, root, *command]


def _remove(folder: Path) -> None:
    """Remove a folder, to which programs of a killed build may still be writing."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    until(is_gone, f"the removal of {folder}")


class DebianContainer:
    """
    A container that crun runs, on the machine's network.

    Args:
        folder: for its configuration and output, next to the image's file system.
        spec: the configuration for the OCI runtime.
    """

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        folder.mkdir()
        self._folder, self._process = folder, spec["process"]
        (folder / "config.json").write_text(json.dumps(spec))
        (folder / "hosts").write_text("127.0.0.1 localhost winnow\n")
        with (folder / "output").open("wb") as output, (folder / "errors").open("wb") as errors:
            self._crun = subprocess.Popen(
                self._command("run", "--bundle", str(folder), folder.name),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )

        status = folder.parent / "crun" / folder.name / "status"
        until(lambda: status.exists() or self._crun.poll() is not None, "crun to start the container")

    def execute(self, *command: str) -> Ended:
        """Run another command in the container to completion."""
        file = self._folder / "process.json"
        file.write_text(json.dumps({**self._process, "args": command}))
        done = subprocess.run(
            self._command("exec", "--process", str(file), self._folder.name),
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_SECONDS,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def stop(self) -> Ended:
        """Send SIGTERM and wait."""
        subprocess.run(self._command("kill", self._folder.name, "TERM"), check=True)
        return self.wait(STOP_SECONDS)

    def wait(self, seconds: float = RUN_SECONDS) -> Ended:
        """Wait for the end."""
        code = self._crun.wait(seconds)
        return Ended(code, *((self._folder / name).read_text(errors="replace") for name in ("output", "errors")))

    def remove(self) -> None:
        """Kill and remove the container."""
        if self._crun.poll() is None:
            subprocess.run(self._command("delete", "--force", self._folder.name), check=False)
        self._crun.wait()
        shutil.rmtree(self._folder)

    def _command(self, *arguments: str) -> list[str]:
        image = self._folder.parent
        crun = ("crun", f"--root={image / 'crun'}", "--cgroup-manager=disabled", *arguments)
        return with_image(image, *WITHOUT_CGROUPS, *crun)


class DebianImage:
    """The image as a folder, and a broker on loopback."""

    def __init__(self, folder: Path, kafka: Cluster) -> None:
        self._folder = folder
        self.kafka, self.bootstrap = kafka, kafka.bootstrap
        inspected = json.loads((folder / "config.json").read_text())
        self.config: dict[str, Any] = inspected["Docker"]["config"]

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> Ended:
        """Run a command in a new container to completion."""
        with self.start(*command, environment=environment) as container:
            return container.wait()

    @contextmanager
    def start(self, *command: str, environment: Mapping[str, str] | None = None) -> Iterator[DebianContainer]:
        """Run a command in a new container while the block runs."""
        folder = self._folder / uuid.uuid4().hex[:12]
        ports = HeldPorts(1)  # the container uses the machine's network
        variables = {"WINNOW_HTTP__PORT": str(ports[0]), **(environment or {})}
        container = DebianContainer(folder, self._spec(folder, command, variables))
        try:
            yield container
        finally:
            container.remove()

    def _spec(self, folder: Path, command: Sequence[str], environment: dict[str, str]) -> dict[str, Any]:
        """Return the OCI runtime configuration: the image's own, restricted as in the Compose file."""
        variables = dict(each.split("=", 1) for each in self.config["Env"]) | environment
        user, group = map(int, self.config["User"].split(":"))
        temporary = (mount.partition(":") for mount in SERVICES["winnow"]["tmpfs"])
        return {
            "ociVersion": "1.0.2",
            "hostname": "winnow",
            "root": {"path": str(self._folder / "rootfs"), "readonly": SERVICES["winnow"]["read_only"]},
            "process": {
                "args": [*self.config["Entrypoint"], *(command or self.config["Cmd"])],
                "env": [f"{name}={value}" for name, value in variables.items()],
                "cwd": self.config["WorkingDir"],
                "user": {"uid": user, "gid": group},
                "capabilities": {},
                "noNewPrivileges": True,
            },
            "mounts": [
                *MOUNTS,
                *(
                    {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": options.split(",")}
                    for path, _, options in temporary
                ),
                _read_only(folder / "hosts", "/etc/hosts"),
                _read_only(ROOT / "docker/winnow.yaml", CONFIG),
            ],
            "linux": {"namespaces": [{"type": each} for each in ("pid", "ipc", "uts", "mount")]},
        }


def _read_only(file: Path, where: str) -> dict[str, Any]:
    return {"destination": where, "type": "bind", "source": str(file), "options": ["bind", "ro"]}
