"""
Runs a command that ends when its parent process ends, even by a crash. Kafka's servers run under it.

This file contains both the parent's side (`ManagedProcess`) and the supervisor, a small program between the two:

    python process.py PARENT_PID FOLDER COMMAND ARGUMENT...

The parent holds the other end of the supervisor's standard input. When the parent closes it or dies, the supervisor
stops the command (SIGTERM, after 15 seconds SIGKILL); when the parent writes to it, the supervisor kills the command.
FOLDER, unless empty, is removed if the parent has died. Unlike Linux's parent-death signal, a pipe does not depend on
the thread that forked. The supervisor also compares the parent's pid, because a fork of the parent may have inherited
the pipe and keep it open.
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
from typing import Self

GRACE_SECONDS = 15
LOOK_SECONDS = 0.5


class Startable:
    """A server as a context manager: it starts on entry and closes on exit, and also if its start fails."""

    def start(self) -> None:
        """Start and wait until it responds."""
        raise NotImplementedError

    def close(self) -> None:
        """End all that was started."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ManagedProcess:
    """
    A command under a supervisor, in its own process group. It communicates only by its log and its exit code.

    As a context manager it stops the command at the end.

    Args:
        log: the file to append its output to.
        environment: by default ours.
        remove_on_death: a folder to remove if we die without stopping it.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_and_wait()

    @property
    def pid(self) -> int:
        """The pid of the supervisor and of the process group; the command is the supervisor's child."""
        return self._supervisor.pid

    def poll(self) -> int | None:
        return self._supervisor.poll()

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the command to end; return its exit code. Raises subprocess.TimeoutExpired."""
        return self._supervisor.wait(seconds)

    def stop(self, *, at_once: bool = False) -> None:
        """Stop the command, or kill it at once. Does not wait, so several can stop in parallel."""
        assert self._supervisor.stdin is not None  # it was started with a pipe
        if self._supervisor.stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError), self._supervisor.stdin:  # broken: the command has ended by itself
            self._supervisor.stdin.write(b"at once" if at_once else b"")

    def stop_and_wait(self, *, at_once: bool = False) -> None:
        self.stop(at_once=at_once)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(GRACE_SECONDS + 5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._supervisor.pid, signal.SIGKILL)
        self._supervisor.wait()


def main(parent: int, folder: str, command: list[str]) -> int:
    """Supervise the command until it ends, or until the parent stops it or dies; return the command's exit code."""
    for interrupt in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(interrupt, lambda *_: None)  # only the parent decides; unlike SIG_IGN, a handler is not inherited
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:
        while child.poll() is None and os.getppid() == parent and not _parent_speaks():
            pass
        _end(child, at_once=_parent_speaks() and bool(os.read(sys.stdin.fileno(), 1)))
    if folder and os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)
    return child.returncode


def _parent_speaks() -> bool:
    """Return whether the parent writes to the pipe or closes it within a moment."""
    return bool(select.select([sys.stdin], [], [], LOOK_SECONDS)[0])


def _end(child: subprocess.Popen[bytes], *, at_once: bool) -> None:
    """End the child by SIGTERM, then SIGKILL after the grace period; with `at_once`, by SIGKILL."""
    if child.poll() is None and not at_once:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
    child.kill()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
