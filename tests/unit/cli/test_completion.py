"""Tab completes commands and options, once the command of docs/getting-started.md has installed it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs import ROOT, fenced

PLACES = {
    "bash": ".local/share/bash-completion/completions/winnow",
    "fish": ".config/fish/completions/winnow.fish",
    "zsh": ".zfunc/_winnow",
}
TABS = """
source {script}
COMP_WORDS=(winnow lag --wa) COMP_CWORD=2
_winnow_completion winnow
echo "${{COMPREPLY[*]}}"
"""


def documented(shell: str) -> str:
    """Return the command that installs it."""
    (block,) = (each for each in fenced((ROOT / "docs/getting-started.md").read_text(), "bash") if "_COMPLETE" in each)
    (command,) = (line for line in block.splitlines() if f"{shell}_source" in line)
    return command


@pytest.mark.parametrize("shell", PLACES)
def test_the_documented_command_installs_it(shell: str, tmp_path: Path) -> None:
    """Where the shell looks for it, as a script of that shell; that of bash completes an option."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "winnow").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m app.cli "$@"\n')
    (bin_ / "winnow").chmod(0o755)

    def bash(program: str) -> str:
        environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{bin_}:{os.environ['PATH']}"}
        return subprocess.run(
            ["bash", "-ec", program], env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    bash(documented(shell))

    script = tmp_path / PLACES[shell]
    assert "_WINNOW_COMPLETE=" + shell in script.read_text()
    if shell == "bash":
        assert "--watch\n" == bash(TABS.format(script=script))
