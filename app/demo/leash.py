"""
Runs a command that ends when the process that started it ends, however that ends. A process beside the demo's Kafka.

    python leash.py PARENT_PID FOLDER COMMAND ARGUMENT...

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

GRACE_SECONDS = 15
LOOK_SECONDS = 0.5


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
