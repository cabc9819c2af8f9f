"""
Runs a command that ends when the process that started it ends, however that ends. A process of its own beside the embedded broker.

    python leash.py PARENT_PID FOLDER COMMAND ARGUMENT...

The parent holds the other end of standard input: closing it, or dying, asks the command to stop (SIGTERM, after
15 seconds SIGKILL). FOLDER, unless empty, is removed when the parent has died, because nobody is left to do it.
A pipe does not depend on the thread that forked, as Linux's parent-death signal does; the look at the parent's pid
covers a pipe end that a fork of the parent has inherited.
"""

from __future__ import annotations

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
        signal.signal(interrupt, signal.SIG_IGN)  # only the parent decides
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, restore_signals=True, preexec_fn=_default_signals
    ) as child:
        while child.poll() is None and os.getppid() == parent and not _let_go():
            pass
        _end(child)
    if folder and os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)
    return child.returncode


def _let_go() -> bool:
    """Wait a moment for the parent to close its end; nothing is ever written to it."""
    return bool(select.select([sys.stdin], [], [], LOOK_SECONDS)[0])


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask the child to stop, then make it."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()


def _default_signals() -> None:
    """Give the child back the signals that this process ignores (safe here: one thread only)."""
    for interrupt in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(interrupt, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
