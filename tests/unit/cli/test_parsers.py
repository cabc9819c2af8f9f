"""`winnow parsers` describes every parser, also those of other packages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from app.cli import main
from parsers import registry
from parsers.registry import PARSERS
from tests.support.packages import install

PACKAGE = '''
class Shout:
    """Says it
    loudly.

    Args:
        max_x: how loud it is, at most: at least
            this much.
    """

    def __init__(self, max_x: int, *, loud: bool = False, words: tuple = ("a b", None), table=None) -> None: ...

    def parse(self, lines): ...

def anything(**options): ...
'''
ENTRY_POINTS = """[winnow.parsers]
shout = somebodys_parser:Shout
anything = somebodys_parser:anything
broken = somebodys_parser:Missing
undefined = somebodys_broken_parser:Missing
"""


def parsers(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["parsers", *arguments])
    assert 0 == done.exit_code, done.output
    return done.stdout


@pytest.mark.parametrize("name", PARSERS.built_in)
def test_a_built_in_parser_is_described(name: str) -> None:
    """It has a summary, a meaning for each option, and an example that builds it."""
    found = registry.describe(name)

    assert found.summary
    assert [] == [option.name for option in found.options if not option.meaning]
    example = yaml.safe_load(found.example)
    assert name == example.pop("name")
    registry.load(name, example)


def test_a_person_reads_the_list() -> None:
    """Options are written as in a configuration; the example can be copied."""
    shown = parsers("delimited").splitlines()

    assert "delimited: Cleanses delimited lines." == shown[0]
    assert "  fields (required): the names of the fields, in order." in shown
    assert '  output.separator ("|"): the ASCII character between two columns of a text.' in shown
    assert "  checks ({}): the checks of fields." in shown
    assert "delimited" == yaml.safe_load("\n".join(shown[shown.index("  parser:") :]))["parser"]["name"]


def test_a_terminal_gets_whole_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is prose is wrapped below its option; an example keeps its lines."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich then takes the output for a terminal
    monkeypatch.setenv("COLUMNS", "80")

    shown = parsers("regex").splitlines()

    assert max(map(len, shown)) <= 80
    assert "      `haproxy-http`, `syslog-rfc3164` or `syslog-rfc5424`." in shown
    assert "    checks: {remote_addr: ip, status: integer}" in shown


def test_a_narrow_terminal_breaks_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name or a pattern can be copied."""
    wide = parsers("regex").split()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")

    assert wide == parsers("regex").split()


def test_the_parsers_of_other_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They need nothing but a docstring; one that cannot be imported hides no other."""
    install(tmp_path, "somebodys_parser", PACKAGE, ENTRY_POINTS)
    (tmp_path / "somebodys_broken_parser.py").write_text("x = undefined")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "somebodys_parser", raising=False)

    found = {each.pop("name"): each for each in json.loads(parsers("--json"))["parsers"]}

    assert {*PARSERS.built_in, "anything", "broken", "shout", "undefined"} == found.keys()
    assert "Says it loudly." == found["shout"]["summary"]
    assert [
        {"name": "max.x", "default": None, "meaning": "how loud it is, at most: at least this much."},
        {"name": "loud", "default": "false", "meaning": ""},
        {"name": "words", "default": '["a b", null]', "meaning": ""},
        {"name": "table", "default": "null", "meaning": ""},
    ] == found["shout"]["options"]
    assert ("", [], None) == tuple(found["anything"][key] for key in ("summary", "options", "example"))
    assert found["broken"]["problem"].startswith("parser broken is registered as somebodys_parser:Missing")
    assert "NameError: name 'undefined' is not defined" in found["undefined"]["problem"]
    assert "broken: parser broken is registered as " in parsers()


def test_a_parser_that_does_not_exist() -> None:
    """The nearest name is suggested."""
    done = CliRunner().invoke(main, ["parsers", "delimitd"])

    assert (2, "configuration: NAME: no parser is called 'delimitd'; did you mean 'delimited'?\n") == (
        done.exit_code,
        done.stderr,
    )
