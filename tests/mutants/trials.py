"""
Tries mutants: puts each in place of its module and runs the unit tests that should notice.

A trial is a fork of a pytest session that has collected its tests, so it costs only the tests themselves. In the fork
the functions of the module get the mutant's code. The mutant is also written to the module's file, because some tests
start programs of their own, so this runs in a copy of the project.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import NoReturn

import pyarrow as pa
import pytest

from parsers import registry
from tests.mutants.mutants import Mutant

OUTPUT = Path("output.txt").absolute()  # some tests change the working directory
# A unit test takes less than a second, a few on a busy machine. One that takes longer hangs because of the mutant.
TEST_SECONDS = 60
# All of them together may take this many times as long as without a mutant.
LONGER = 5
OPTIONS = (
    "--override-ini=addopts=--import-mode=importlib",
    "-pno:terminal",
    "--capture=no",
    "-pno:cacheprovider",
    "-pno:faulthandler",  # some tests crash workers
    f"--timeout={TEST_SECONDS}",
)
MEMORY_BYTES = 12 << 30
# The exit code of a trial that could not begin.
UNPREPARED = 70


class Trials:
    """
    A pytest plugin that tries mutants instead of running the tests once.

    Args:
        mutants: what to try.
        tried: called with each mutant and whether a test noticed it.
        tests: the test modules to run; if empty, all that should notice the mutants.
    """

    def __init__(
        self, mutants: Sequence[Mutant], tried: Callable[[Mutant, bool], object], tests: Sequence[str] = ()
    ) -> None:
        self._mutants = mutants
        self._tried = tried
        self._chosen = tests
        self._failure = ""
        self._noticed = Counter[str]()
        """How many mutants each test has noticed."""

    def run(self) -> None:
        """
        Try the mutants.

        Raises:
            RuntimeError: the tests fail without a mutant.
        """
        if not self._mutants:
            return
        tests = self._chosen or sorted({test for mutant in self._mutants for test in tests_of(mutant.path)})
        code = pytest.main([*OPTIONS, *tests], plugins=[self])
        if code or self._failure:
            msg = f"no mutant was tried: the tests fail without one: {self._failure or code!r}"
            raise RuntimeError(msg)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Make Hypothesis try the same few examples for each mutant, without shrinking, which only helps people."""
        from hypothesis import Phase, settings  # pytest must come first, to rewrite its assertions

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile(
            "mutants", max_examples=30, derandomize=True, database=None, deadline=None, phases=phases
        )
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the failed test and its message."""
        if report.failed:
            OUTPUT.write_text(f"{report.nodeid}\n{report.longreprtext}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a test module cannot be imported."""
        if report.failed:
            self._failure = f"{report.nodeid}\n{report.longreprtext}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Replace pytest's own loop over the collected tests."""
        if self._failure:
            return True
        registry.load("idc-access-log", {}).parse(pa.array([b"loads the kernels, which takes a second"], pa.binary()))
        began = time.monotonic()
        if not passes(session.items, math.inf):
            self._failure = OUTPUT.read_text()
            return True
        patience = LONGER * (time.monotonic() - began)
        for mutant in self._mutants:
            importlib.import_module(_import_name(mutant.path))  # while its file is unchanged
            with in_file(mutant):
                tests = self._likeliest_first(mutant.path, session)
                noticed = not passes(tests, patience, partial(put_in_place, mutant))
            self._tried(mutant, noticed)
            if noticed and OUTPUT.exists():
                self._noticed[OUTPUT.read_text().partition("\n")[0]] += 1
        return True

    def _likeliest_first(self, path: str, session: pytest.Session) -> list[pytest.Item]:
        """Return the tests of a module, first those that have noticed most mutants, then the nearest ones."""
        nearest = {Path(test).resolve(): place for place, test in enumerate(self._chosen or tests_of(path))}
        tests = [item for item in session.items if item.path in nearest]
        return sorted(tests, key=lambda item: (-self._noticed[item.nodeid], nearest[item.path]))


def tests_of(path: str) -> list[str]:
    """Return the unit tests that should notice a mutant of a module, first those that name the module."""
    module = Path(path)
    tests = _of_parsers(module) if module.parts[0] == "parsers" else _of_app(module)

    def distance(test: Path) -> tuple[bool, bool, str]:
        return test.name != f"test_{module.name}", _import_name(path) not in test.read_text(), str(test)

    return [str(test) for test in sorted(tests, key=distance)]


def _of_app(module: Path) -> set[Path]:
    unit = Path("tests/unit")
    folder = unit / module.relative_to("app").parent
    executor = [*(unit / "executor").glob("test_*.py"), unit / "test_watchdog.py"]
    users = [] if folder.name in {"driver", "operate"} else executor
    return {*folder.glob("test_*.py"), unit / "test_simulation.py", *users}


def _of_parsers(module: Path) -> set[Path]:
    """Return the tests of a parser's folder and the contract's, and those that import the module."""
    tests, name = Path("tests/unit") / "parsers", _import_name(str(module))
    near = [*(Path("tests/unit") / module.parent).glob("test_*.py"), tests / "test_parser_contract.py"]
    users = [each for each in tests.rglob("test_*.py") if f"from {name} import" in each.read_text()]
    return {*near, *users} - {tests / "test_data.py"}  # it is about files that are not in the copy


def _import_name(path: str) -> str:
    return ".".join(Path(path).with_suffix("").parts)


@contextlib.contextmanager
def in_file(mutant: Mutant) -> Iterator[None]:
    """Put the mutant in the module's file while the block runs."""
    file = Path(mutant.path)
    original = file.with_suffix(".original")
    shutil.copy2(file, original)
    file.write_bytes(mutant.source)
    try:
        yield
    finally:
        original.replace(file)


def passes(tests: Sequence[pytest.Item], seconds: float, prepare: Callable[[], object] = lambda: None) -> bool:
    """Return whether these tests pass within this many seconds in a fork of this process."""
    OUTPUT.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        _run(tests, prepare)
    status = None
    try:
        status = _exit_status(child, time.monotonic() + seconds)
    finally:
        if status is None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if status is not None and os.waitstatus_to_exitcode(status) == UNPREPARED:
        raise RuntimeError(OUTPUT.read_text())
    return status == 0


def _exit_status(child: int, until: float) -> int | None:
    """Return how a process ended; None if it has not by then."""
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.02)
    return None


def _run(tests: Sequence[pytest.Item], prepare: Callable[[], object]) -> NoReturn:
    """Run tests up to the first failure, and exit: with 0 if there was none."""
    code = UNPREPARED
    try:
        os.setsid()
        silence = os.open(os.devnull, os.O_WRONLY)  # a mutant may print without end
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        prepare()
        code = 1
        code = 0 if all(map(_passes, tests, [*tests[1:], None])) else 1
    except BaseException:  # noqa: BLE001  # nothing may reach what the parent does next
        OUTPUT.write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _passes(test: pytest.Item, following: pytest.Item | None) -> bool:
    test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
    return not test.session.testsfailed


def put_in_place(mutant: Mutant) -> None:
    """
    Give the functions of an imported module the code of a mutant. Modules that imported one of them get it, too.

    Raises:
        LookupError: no function differs.
    """
    module = importlib.import_module(_import_name(mutant.path))
    other = ModuleType(module.__name__)
    sys.modules[module.__name__] = other  # dataclasses look up their module
    exec(compile(mutant.source, mutant.path, "exec"), other.__dict__)
    sys.modules[module.__name__] = module
    others, changed = dict(_functions(other)), False
    for name, function in _functions(module):
        changed |= _take(function, others[name])
    if not changed:
        raise LookupError(mutant.name)


def _take(function: FunctionType, other: FunctionType) -> bool:
    """Replace the code of a function with another's. Return whether that makes a difference."""
    defaults = function.__defaults__, function.__kwdefaults__
    if function.__code__ == other.__code__ and defaults == (other.__defaults__, other.__kwdefaults__):
        return False
    function.__code__ = other.__code__
    function.__defaults__, function.__kwdefaults__ = other.__defaults__, other.__kwdefaults__
    return True


def _functions(owner: ModuleType | type, prefix: str = "") -> Iterator[tuple[str, FunctionType]]:
    """Yield each function of a module and its classes, including those behind properties and decorators."""
    for name, value in vars(owner).items():
        function = inspect.unwrap(getattr(value, "fget", value))
        if isinstance(function, FunctionType) and function.__module__ == _module_of(owner):
            yield prefix + name, function
        elif isinstance(value, type) and value.__module__ == _module_of(owner):
            yield from _functions(value, f"{prefix}{name}.")


def _module_of(owner: ModuleType | type) -> str:
    """Return the name of the module that this is, or belongs to."""
    return owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
