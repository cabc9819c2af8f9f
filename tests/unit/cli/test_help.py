"""What `winnow` and `--help` say: each command with a whole sentence, and with an example that runs."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from app.cli import main
from tests.support.commands import LEAVES
from tests.support.configuration import file_of
from tests.unit.config.good import GOOD

WIDTH = 80
WITHOUT_KAFKA = {"config": [], "parse": [], "parsers": [], "check": ["--connect"]}
"""The commands that need no Kafka, and the options of their examples that do."""


each_command = pytest.mark.parametrize("name", LEAVES)


def helped(*arguments: str) -> str:
    return CliRunner(env={"COLUMNS": str(WIDTH)}).invoke(main, [*arguments, "--help"]).output


@pytest.mark.parametrize("group", [(), ("dlq",), ("offsets",), ("transactions",)], ids=str)
def test_a_group_lists_each_command_with_a_sentence(group: tuple[str, ...]) -> None:
    """On one line that ends with a full stop, so none ends in dots; and none is left out."""
    shown = helped(*group)
    listed = dict(re.findall(r"^  (\w+) +(.+)$", shown.partition("help  Show")[2], re.MULTILINE))
    commands = main.commands if not group else main.commands[group[0]].commands  # type: ignore[attr-defined]  # a group

    assert {name: sentence(command) for name, command in commands.items()} == {
        name: listed.get(name) for name in commands
    }
    assert all(re.fullmatch(r"[A-Z].*[^.]\.", text) for text in listed.values() if "COMMAND" not in text)
    assert max(map(len, shown.splitlines())) <= WIDTH


def sentence(command: click.Command) -> str:
    """Return the first sentence of a command's help."""
    found = re.match(r".*?\.(?=\s|$)", inspect.cleandoc(command.help or ""), re.DOTALL)
    return " ".join(found[0].split()) if found else ""


def test_commands_are_listed_by_what_one_wants_to_do() -> None:
    """To run the service, to look, to act, and to develop."""
    assert ["Options", "Run it", "Look at it", "Act on it", "Develop and try"] == re.findall(
        r"^(\w[\w ]*):$", helped(), re.MULTILINE
    )


@each_command
def test_each_command_has_an_example(name: str) -> None:
    """The last line of its help, whole: it can be copied."""
    example = example_of(name)

    assert f"\n  Example: {example}\n" in helped(*name.split()[1:])
    assert f"{example} ".startswith(f"{name} ")


@each_command
def test_each_example_is_accepted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command takes its arguments."""
    monkeypatch.chdir(tmp_path)
    Path("access.log").touch()

    arguments = shlex.split(example_of(name))[len(name.split()) :]

    LEAVES[name].make_context(name, arguments).close()


@pytest.mark.parametrize("command", WITHOUT_KAFKA)
def test_an_example_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that need no Kafka do."""
    monkeypatch.chdir(tmp_path)
    file = file_of(GOOD, tmp_path)
    Path("access.log").touch()
    known = {flag for parameter in main.commands[command].params for flag in parameter.opts}
    arguments = [each for each in shlex.split(example_of(f"winnow {command}")) if each not in WITHOUT_KAFKA[command]]

    done = CliRunner().invoke(main, [*arguments[1:], *(["-c", file.name] if "-c" in known else [])])

    assert 0 == done.exit_code, done.output


def example_of(name: str) -> str:
    return (LEAVES[name].epilog or "").removeprefix("Example: ")
