"""
Runs a command that ends when the process that started it ends, however that ends. A process beside the demo's Kafka.

This file is both: what starts such a command (`ManagedProcess`), and the little program between the two:

    python process.py PARENT_PID FOLDER COMMAND ARGUMENT...

The parent holds the other end of standard input: closing it, or dying, asks the command to stop (SIGTERM, after
15 seconds SIGKILL), and writing to it kills the command at once. FOLDER, unless empty, is removed when the parent has
died, because nobody is left to do it. A pipe does not depend on the thread that forked, as Linux's parent-death signal
does; the look at the parent's pid covers a pipe end that a fork of the parent has inherited.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

GRACE_SECONDS = 15
LOOK_SECONDS = 0.5


class ManagedProcess:
    """
    A command on a process, in a process group of its own; nothing is read from it but its log and its exit code.

    Args:
        command: what to run.
        log: the file that its output is appended to.
        cwd: where to run it.
        environment: its environment, if not ours.
        remove_on_death: a folder to remove if we die without having stopped it.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        remove_on_death: Path | None = None,
    ) -> None:
        """Start it."""
        holder = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(remove_on_death or "")]
        with log.open("ab") as output:
            self._holder = subprocess.Popen(
                [*holder, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process's own pid: the command is its child."""
        return self._holder.pid

    def poll(self) -> int | None:
        """Return the command's exit code, None while it runs."""
        return self._holder.poll()

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the command's end; return its exit code. Raises subprocess.TimeoutExpired."""
        return self._holder.wait(seconds)

    def request_stop(self, *, at_once: bool = False) -> None:
        """Make the command stop, or kill it at once; does not wait."""
        assert self._holder.stdin is not None  # always a pipe: it is the process
        if self._holder.stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError), self._holder.stdin:  # broken: the command has ended by itself
            self._holder.stdin.write(b"at once" if at_once else b"")

    def end(self, *, at_once: bool = False) -> None:
        """Make the command stop and wait for it; what is left of its process group is killed."""
        self.request_stop(at_once=at_once)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._holder.wait(GRACE_SECONDS + 5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._holder.pid, signal.SIGKILL)
        self._holder.wait()


def main(parent: int, folder: str, command: list[str]) -> int:
    """Run the command until it ends or the parent lets go."""
    for interrupt in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(interrupt, lambda *_: None)  # only the parent decides; unlike SIG_IGN, this is not inherited
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:
        while child.poll() is None and os.getppid() == parent and not _spoken_to():
            pass
        _end(child, at_once=_spoken_to() and bool(os.read(sys.stdin.fileno(), 1)))
    if folder and os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)
    return child.returncode


def _spoken_to() -> bool:
    """Wait a moment for the parent to write to its end, or to close it."""
    return bool(select.select([sys.stdin], [], [], LOOK_SECONDS)[0])


def _end(child: subprocess.Popen[bytes], *, at_once: bool) -> None:
    """Make the child stop, and if there is time, ask it first."""
    if child.poll() is None and not at_once:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
    child.kill()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
