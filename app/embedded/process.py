"""
Runs a command that ends when the process that started it ends, however that ends. Kafka's servers run under it.

This file is both: what starts such a command (`ManagedProcess`), and its supervisor, a little program between the two:

    python process.py PARENT_PID FOLDER COMMAND ARGUMENT...

The parent holds the other end of the supervisor's standard input. When the parent closes it or dies, the supervisor
asks the command to stop (SIGTERM, after 15 seconds SIGKILL); when the parent writes to it, the supervisor kills the
command. FOLDER, unless empty, is removed when the parent has died, because nobody else is left to do it. A pipe does
not depend on the thread that forked, as Linux's parent-death signal does. The supervisor also compares the parent's
pid, because a fork of the parent may have inherited the pipe and keep it open.
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
    A command under a supervisor, in a process group of its own; it answers only by its log and its exit code.

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
        supervisor = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(remove_on_death or "")]
        with log.open("ab") as output:
            self._supervisor = subprocess.Popen(
                [*supervisor, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The supervisor's pid, which is also the process group's; the command is its child."""
        return self._supervisor.pid

    def poll(self) -> int | None:
        """Return the command's exit code, None while it runs."""
        return self._supervisor.poll()

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the command's end; return its exit code. Raises subprocess.TimeoutExpired."""
        return self._supervisor.wait(seconds)

    def stop(self, *, at_once: bool = False) -> None:
        """Make the command stop, or kill it at once; does not wait, so that several can stop side by side."""
        assert self._supervisor.stdin is not None  # always a pipe: it was started with one
        if self._supervisor.stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError), self._supervisor.stdin:  # broken: the command has ended by itself
            self._supervisor.stdin.write(b"at once" if at_once else b"")

    def stop_and_wait(self, *, at_once: bool = False) -> None:
        """Make the command stop and wait for it; what is left of its process group is killed."""
        self.stop(at_once=at_once)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(GRACE_SECONDS + 5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._supervisor.pid, signal.SIGKILL)
        self._supervisor.wait()


def main(parent: int, folder: str, command: list[str]) -> int:
    """Supervise the command until it ends, or the parent ends or stops it; return the command's exit code."""
    for interrupt in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(interrupt, lambda *_: None)  # only the parent decides; unlike SIG_IGN, this is not inherited
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:
        while child.poll() is None and os.getppid() == parent and not _parent_speaks():
            pass
        _end(child, at_once=_parent_speaks() and bool(os.read(sys.stdin.fileno(), 1)))
    if folder and os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)
    return child.returncode


def _parent_speaks() -> bool:
    """Return whether the parent writes to its end of the pipe, or closes it, within a moment."""
    return bool(select.select([sys.stdin], [], [], LOOK_SECONDS)[0])


def _end(child: subprocess.Popen[bytes], *, at_once: bool) -> None:
    """End the child: by SIGTERM and, after the grace period or at once, by SIGKILL."""
    if child.poll() is None and not at_once:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
    child.kill()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
