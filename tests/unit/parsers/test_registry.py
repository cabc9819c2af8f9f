"""Parsers are found by name."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from parsers.contract import Parser
from parsers.delimited import Delimited
from parsers.errors import ParserOptionError, UnknownParser
from parsers.idc_access_log import IdcAccessLog
from parsers.registry import load, names, problems
from parsers.testing import batch, outcomes
from tests.support.packages import install

ROOT = Path(__file__).parents[3]
THIRD_PARTY = '''
import sys
from parsers.delimited import Delimited

class Shout:
    """A parser of a third party."""

    def __init__(self, *, max_x: int, loud: bool = False) -> None:
        if max_x < 0:
            raise ValueError("max.x is below 0")
        if max_x > 9:
            open("/nowhere/words") if max_x < 99 else sys.exit(0)
        self.max_x, self.loud = max_x, loud

    def parse(self, lines):
        return Delimited(fields=["a"], output="{a}", engine="plain").parse(lines)

def anything(**options):
    return Shout(max_x=len(options))

def nothing():
    return object()

NUMBER = 5
'''
ENTRY_POINTS = """[winnow.parsers]
shout = somebodys_parser:Shout
anything = somebodys_parser:anything
nothing = somebodys_parser:nothing
broken = somebodys_parser:Missing
no-module = no_such_module:Shout
number = somebodys_parser:NUMBER
undefined = somebodys_broken_parser:Shout
idc-access-log = somebodys_parser:Shout
"""


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a distribution with its own parsers."""
    install(tmp_path, "somebodys_parser", THIRD_PARTY, ENTRY_POINTS)
    (tmp_path / "somebodys_broken_parser.py").write_text("x = undefined")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "somebodys_parser", raising=False)


def test_built_in_parsers_are_found() -> None:
    assert {"delimited", "idc-access-log"} <= {*names()}
    assert isinstance(load("idc-access-log", {}), IdcAccessLog)
    assert isinstance(load("delimited", {"fields": ["a"], "output": "{a}"}), Delimited)


def test_built_in_parsers_are_registered_once() -> None:
    """The distribution has no entry points for its own parsers, so they are listed once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert "winnow.parsers" not in project.get("entry-points", {})


def test_option_keys_are_written_as_in_yaml() -> None:
    """Dots and hyphens in an option's name stand for underscores."""
    for key in ("output.separator", "output-separator", "output_separator"):
        parser = load("delimited", {"fields": ["a", "b"], "output": "{a};{b}", key: ";"})

        assert [b"1;2"] == outcomes(parser.parse(batch([b"1,2"])), 1)


BARE = """
import sys
sys.path[:] = [path for path in sys.path if "site-packages" not in path]
from parsers import registry
print(registry.names(), any(name == "app" or name.startswith("app.") for name in sys.modules))
"""


def test_built_in_parsers_need_no_metadata(tmp_path: Path) -> None:
    """With only the sources on the path, the built-in parsers are found, and nothing of app is imported."""
    script = tmp_path / "bare.py"
    script.write_text(f"import numpy, pyarrow, sys\nsys.path.insert(0, {str(ROOT)!r})\n{BARE}")

    output = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout

    assert output == "['csv', 'delimited', 'idc-access-log', 'json', 'logfmt', 'regex'] False\n"


@pytest.mark.usefixtures("third_party")
def test_an_installed_parser_is_found() -> None:
    """A parser that another distribution registers is listed and built with its options."""
    assert "shout" in names()

    parser = load("shout", {"max.x": 3})

    assert isinstance(parser, Parser)
    assert parser.max_x == 3  # type: ignore[attr-defined]


@pytest.mark.usefixtures("third_party")
def test_a_parser_may_take_any_option() -> None:
    """Option names are not checked if the parser takes any."""
    assert load("anything", {"a": 1, "b.c": 2}).max_x == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("idc-acess-log", "did you mean 'idc-access-log'?"),
        ("zzz", "known: anything, broken, csv, delimited"),
        ("broken", "somebodys_parser:Missing, which cannot be imported: AttributeError: module 'somebodys_parser'"),
        ("no-module", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("number", "cannot be imported: TypeError: 5 is not a callable object"),
        ("undefined", "somebodys_broken_parser:Shout, which cannot be imported: NameError: name 'undefined' is not"),
        ("nothing", "object has no method parse"),
        ("idc-access-log", "more than one parser is called 'idc-access-log': parsers.idc_access_log"),
    ],
)
@pytest.mark.usefixtures("third_party")
def test_a_name_that_cannot_be_used_is_an_error(name: str, message: str) -> None:
    """A name that is unknown, ambiguous or not a parser's is an error that suggests the correction."""
    with pytest.raises(UnknownParser) as error:
        load(name, {})

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'max_x' is missing"),
        ({"max_x": 1, "lud": True}, "no option 'lud'; did you mean 'loud'?"),
        ({"max.x": 1, "max-x": 1}, "option max_x is given twice"),
        ({"max.x": -1}, "parser shout does not accept its options: max.x is below 0"),
        ({"max.x": "1"}, "parser shout does not accept its options"),
        ({"max.x": 99}, "parser shout cannot be built: SystemExit: 0"),
        (
            {"max.x": 10},
            "parser shout cannot be built: FileNotFoundError: [Errno 2] No such file or directory",
        ),
    ],
)
@pytest.mark.usefixtures("third_party")
def test_an_option_that_does_not_fit_is_an_error(options: dict[str, object], message: str) -> None:
    """An option that is unknown, missing, doubled or refused is an error that names parser and option."""
    with pytest.raises(ParserOptionError) as error:
        load("shout", options)

    assert message in str(error.value)


def test_wrong_options_of_a_built_in_parser_name_it() -> None:
    with pytest.raises(ParserOptionError, match=r"parser delimited: .*no field 'b'"):
        load("delimited", {"fields": ["a"], "output": "{b}"})


def test_errors_survive_pickle() -> None:
    """They can be pickled, and are ValueErrors."""
    for error in (UnknownParser("x"), ParserOptionError("y")):
        again = pickle.loads(pickle.dumps(error))

        assert (type(again), str(again)) == (type(error), str(error))
        assert isinstance(again, ValueError)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"max.x": 1}, []),
        (
            {"max.x": 1, "lou-d": 1, "x": 1},
            [("lou-d", "no option 'lou_d'; did you"), ("x", "no option 'x'; known: loud, max_x")],
        ),
        ({"loud": True}, [("", "option 'max_x' is missing")]),
        ({"max.x": 1, "max-x": 1}, [("max-x", "option max_x is given twice")]),
        ({"max.x": -1}, [("", "does not accept its options: max.x is below 0")]),
    ],
)
@pytest.mark.usefixtures("third_party")
def test_the_problems_of_options(options: dict[str, object], found: list[tuple[str, str]]) -> None:
    """All of those for which the parser cannot be built, each with the option as it is written."""
    told = problems("shout", options)

    assert [key for key, _ in found] == [key for key, _ in told]
    assert all(problem.startswith(begin) for (_, problem), (_, begin) in zip(told, found, strict=True)), told


def test_a_misspelt_option_hides_no_other_problem() -> None:
    """Its value counts as that of the nearest name; without a near name it counts as not written."""
    told = problems("delimited", {"feilds": ["a"], "output": "{b}", "whatever": 1})

    assert ["feilds", "whatever", "", "output"] == [option for option, _ in told], told


def test_a_parser_tells_every_problem_of_its_values() -> None:
    """The first word names the option."""
    told = problems("delimited", {"fields": ["a"], "output": 5, "separator": ""})

    assert ["separator", "output"] == [option for option, _ in told]
