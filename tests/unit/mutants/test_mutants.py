"""The faults that are put into the product on purpose, and the list of those that change nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutants.hunt import listed, mutants_to_try, without_equivalent
from tests.mutants.mutants import mutants_of

FAULTS = {
    "return a < b": ["a < b → a <= b"],
    "return a is not b": ["a is not b → a is b"],
    "return a <= b < c": ["a <= b < c → a < b < c", "a <= b < c → a <= b <= c"],
    "return a and b": ["a and b → a or b"],
    "return not a": ["not a → a"],
    "return -a": ["-a → a"],
    "return a + b * c": ["a + b * c → a - b * c", "b * c → b / c"],
    "return min(a, key=b)": ["min(a, key=b) → max(a, key=b)"],
    "return a[0]": ["0 → 1 in a[0]"],
    "return a(b=True)": ["True → False in b=True"],
    "a(b)": ["a(b) → nothing"],
    "a += b": ["a += b → a -= b", "a += b → nothing"],
    "a.b = a[c] = d": ["a.b = a[c] = d → nothing"],
    "if a:\n  return b": ["a → True", "a → False"],
    "return b if a else c": ["a → True", "a → False"],
    "while a:\n  return": ["a → False"],
    "return [a for a in b if a]": ["a → True"],
    "return a in b\nreturn a in b": ["a in b → a not in b", "a in b → a not in b (2)"],
    # left alone
    "'''Text.'''": [],
    "a = b": [],
    "a: b | c = d": [],
    "assert a < b": [],
    "return f'{a + b}'": [],
    "return zip(a, strict=True)": [],
    "return cast(a | b, c)": [],
}


@pytest.mark.parametrize("body", FAULTS)
def test_faults_of_a_function(body: str) -> None:
    """Each operator, constant, branch and statement is mistaken once; texts, types and assertions are left alone."""
    source = "def f():\n" + "".join(f"  {line}\n" for line in body.splitlines())

    mutants = mutants_of("m.py", source.encode())

    assert [f"f: {each}" for each in FAULTS[body]] == [mutant.name for mutant in mutants]
    for mutant in mutants:
        compile(mutant.source, mutant.path, "exec")


def test_a_mutant_differs_in_one_place() -> None:
    """The rest of its text stays as it is, also after letters of several bytes."""
    source = "class C:\n  def f(self, a: int | None = 1) -> int | None:\n    return ('€' * a) + 'b'  # why\n"

    one, plus, _ = mutants_of("m.py", source.encode())

    assert ("C.f: 1 → 2 in a default", 2) == (one.name, one.line)
    assert source.replace("= 1", "= (2)") == one.source.decode()
    assert source.replace("('€' * a) + 'b'", "('€' * a - 'b')") == plus.source.decode()


def test_tuning_figures_are_left_alone() -> None:
    """What stands at the top of a module was measured; no test can tell whether it is right."""
    assert [] == mutants_of("m.py", b"SECONDS = 1 + 2\nclass C(Generic[1]):\n  pass\n")


def test_every_equivalent_mutant_exists_and_has_its_reason() -> None:
    """The list of those that change nothing follows the sources, and does not grow without a word."""
    assert all(reason for reasons in listed().values() for reason in reasons.values())
    assert mutants_to_try(listed())

    with pytest.raises(ValueError, match=r"do not exist \(any more\): f: a < b → a > b"):
        without_equivalent(mutants_of("m.py", b"def f():\n  return a < b\n"), {"f: a < b → a > b": "why"})


@pytest.mark.parametrize(("tests", "share"), [("driver/test_owners.py", "1 of 1"), ("test_errors.py", "0 of 1")])
def test_a_hunt(tests: str, share: str) -> None:
    """A mutant is noticed by the tests of its module, and not by others: then the hunt fails and names it."""
    hunt = ["-m", "tests.mutants", "app/driver/owners.py", "--sample", "1", "--tests", f"tests/unit/{tests}"]

    told = subprocess.run([sys.executable, *hunt], capture_output=True, text=True, check=False)

    assert f"{share} mutants noticed" in told.stdout, told.stderr
    assert ("not noticed: app/driver/owners.py:" in told.stdout) == bool(told.returncode)
    assert told.returncode == (share == "0 of 1")
