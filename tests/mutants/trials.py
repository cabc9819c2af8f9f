"""
Tries mutants: puts each in place of its module and runs the tests that should notice.

A trial is a fork of a pytest session that has collected its tests, so it costs only the tests themselves. In the fork
the mutant's function gets its code; where that would change nothing (a kernel, a value of a class, a function that a decorator
made when the module was imported), the trial is a new pytest session instead. The mutant is also written to the module's file,
because some tests start programs of their own, so this runs in a copy of the project.

All tests run once without a mutant, to measure which lines each one reaches and how long it takes.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import json
import math
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import NoReturn

import pyarrow as pa
import pytest
from coverage import Coverage, CoverageData
from numba.extending import is_jitted

from parsers import registry
from tests.mutants.mutants import Mutant

OUTPUT = Path("output.txt").absolute()  # some tests change the working directory
REACHED, SECONDS = Path("reached.coverage").absolute(), Path("seconds.json").absolute()
# A test that takes this many times as long as without a mutant hangs because of the mutant.
LONGER = 20
LEAST_SECONDS = 10
MOST_SECONDS = 600
# How long the tests of one mutant may take together, as measured without a mutant.
ENOUGH_SECONDS = 180
OPTIONS = (
    "--override-ini=addopts=--import-mode=importlib",
    "-pno:terminal",
    "--capture=no",
    "-pno:cacheprovider",
    "-pno:faulthandler",  # some tests crash workers
    f"--timeout={MOST_SECONDS}",
    "--ignore=tests/unit/mutants",
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
        tests: the test modules to run.
    """

    def __init__(
        self, mutants: Sequence[Mutant], tried: Callable[[Mutant, bool], object], tests: Sequence[str]
    ) -> None:
        self._mutants = mutants
        self._tried = tried
        self._tests = tests
        self._failure = ""
        self._coverage: Coverage | None = None
        self._seconds: dict[str, float] = {}
        """How long each test takes without a mutant."""

    def run(self) -> None:
        """
        Try the mutants.

        Raises:
            RuntimeError: the tests fail without a mutant.
        """
        if not self._mutants:
            return
        code = pytest.main([*OPTIONS, *self._tests], plugins=[self])
        if code or self._failure:
            msg = f"no mutant was tried: the tests fail without one: {self._failure or code!r}"
            raise RuntimeError(msg)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Make Hypothesis try the same few examples for each mutant, without shrinking, which only helps people."""
        from hypothesis import HealthCheck, Phase, settings  # pytest must come first, to rewrite its assertions

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile(
            "mutants",
            max_examples=30,
            derandomize=True,
            database=None,
            deadline=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),  # measuring slows a test down
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

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure each test without a mutant."""
        if self._coverage is not None:
            self._coverage.switch_context(item.nodeid)
        began = time.monotonic()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.monotonic() - began

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Replace pytest's own loop over the collected tests."""
        if self._failure:
            return True
        registry.load("idc-access-log", {}).parse(pa.array([b"loads the kernels, which takes a second"], pa.binary()))
        if not passes(session.items, math.inf, self._measuring()):
            self._failure = OUTPUT.read_text()
            return True
        self._seconds = json.loads(SECONDS.read_text())
        for item in session.items:
            item.add_marker(pytest.mark.timeout(self._patience(item)), append=False)
        reached = Reached()
        for mutant in self._mutants:
            importlib.import_module(_import_name(mutant.path))  # while its file is unchanged
            with in_file(mutant):
                tests = self._nearest(mutant, reached, session)
                noticed = bool(tests) and not passes(tests, sum(map(self._patience, tests)), put_in_place(mutant))
            self._tried(mutant, noticed)
        return True

    @contextlib.contextmanager
    def _measuring(self) -> Iterator[None]:
        """Note which lines of the product each test reaches in this block, and how long it takes."""
        REACHED.unlink(missing_ok=True)
        self._coverage = Coverage(
            data_file=str(REACHED),
            include=["app/*", "parsers/*"],
            concurrency=["thread", "greenlet"],
            config_file=False,
        )
        self._coverage.start()
        try:
            yield
        finally:
            self._coverage.stop()
            self._coverage.save()
            SECONDS.write_text(json.dumps(self._seconds))

    def _patience(self, item: pytest.Item) -> float:
        return max(LONGER * self._seconds[item.nodeid], LEAST_SECONDS)

    def _nearest(self, mutant: Mutant, reached: Reached, session: pytest.Session) -> list[pytest.Item]:
        """
        Return the tests that reach a mutant or are named after its module.

        Those that reach little else come first. The rest is left out when they take long enough.
        """
        name = f"test_{Path(mutant.path).name}"
        reaching = reached.by(mutant) if _is_seen(mutant) else reached.around(mutant)
        tests = [each for each in session.items if each.nodeid in reaching or each.path.name == name]
        tests.sort(key=lambda each: (each.path.name != name, reached.sizes[each.nodeid]))
        took = itertools.accumulate((self._seconds[each.nodeid] for each in tests), initial=0.0)
        return [each for each, seconds in zip(tests, took, strict=False) if seconds < ENOUGH_SECONDS]


class NotReplaceableError(Exception):
    """A mutant is not in a function that can be replaced."""


class Reached:
    """The lines that tests have reached in their process."""

    def __init__(self) -> None:
        self._data = CoverageData(str(REACHED))
        self._data.read()
        self._lines: dict[str, Mapping[int, Sequence[str]]] = {}
        files = map(self._of, map(Path, self._data.measured_files()))
        self.sizes = Counter(test for lines in files for tests in lines.values() for test in tests)
        """How many lines each test has reached."""

    def by(self, mutant: Mutant) -> set[str]:
        """Return the tests that have reached a mutant's line, or the line before or after it, where its statement is."""
        lines = self._of(Path(mutant.path))
        known = sorted(lines)
        before, after = bisect_right(known, mutant.line), bisect_left(known, mutant.line)
        near = *known[before - 1 : before], *known[after : after + 1]
        return {test for line in near for test in lines[line] if test}

    def around(self, mutant: Mutant) -> set[str]:
        """Return the tests that have reached anything in the folder of a mutant's module."""
        modules = Path(mutant.path).parent.glob("*.py")
        return {test for module in modules for tests in self._of(module).values() for test in tests if test}

    def _of(self, module: Path) -> Mapping[int, Sequence[str]]:
        path = str(module.absolute())
        if path not in self._lines:
            self._lines[path] = self._data.contexts_by_lineno(path)
        return self._lines[path]


def _is_seen(mutant: Mutant) -> bool:
    """Return whether the measurement sees who reaches a mutant: not in a kernel, nor where a module runs when it is imported."""
    function, _, _ = mutant.name.partition(":")
    known = dict(_functions(importlib.import_module(_import_name(mutant.path))))
    return any(outer in known for outer in itertools.accumulate(function.split("."), "{}.{}".format))


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


def passes(tests: Sequence[pytest.Item], seconds: float, around: AbstractContextManager[None]) -> bool:
    """Return whether these tests, with this context around them, pass within this many seconds in a fork of this process."""
    OUTPUT.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        _run(tests, around)
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


def _run(tests: Sequence[pytest.Item], around: AbstractContextManager[None]) -> NoReturn:
    """Run tests up to the first failure, and exit: with 0 if there was none."""
    code = UNPREPARED
    try:
        os.setsid()
        silence = os.open(os.devnull, os.O_WRONLY)  # a mutant may print without end
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        with around:
            code = 1
            code = 0 if all(map(_passes, tests, [*tests[1:], None])) else 1
    except NotReplaceableError:
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *OPTIONS, "-x", *(each.nodeid for each in tests)])
    except BaseException:  # noqa: BLE001  # nothing may reach what the parent does next
        OUTPUT.write_text(traceback.format_exc())
        code = code or UNPREPARED
    finally:
        os._exit(code)


def _passes(test: pytest.Item, following: pytest.Item | None) -> bool:
    test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
    return not test.session.testsfailed


@contextlib.contextmanager
def put_in_place(mutant: Mutant) -> Iterator[None]:
    """
    Give a function of an imported module the code of a mutant. Modules that imported it get it, too.

    Raises:
        NotReplaceableError: the mutant is in a kernel, in a class, or in a function inside another one.
    """
    module, name = importlib.import_module(_import_name(mutant.path)), mutant.name.partition(":")[0]
    if (function := dict(_functions(module)).get(name)) is None:
        raise NotReplaceableError(mutant.name)
    other = ModuleType(module.__name__)
    sys.modules[module.__name__] = other  # dataclasses look up their module
    exec(compile(mutant.source, mutant.path, "exec"), other.__dict__)
    sys.modules[module.__name__] = module
    new = dict(_functions(other))[name]
    function.__code__ = new.__code__
    function.__defaults__, function.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
    yield


def _functions(owner: ModuleType | type, prefix: str = "") -> Iterator[tuple[str, FunctionType]]:
    """
    Yield each function of a module and its classes, including those behind properties, decorators and commands.

    What Numba has compiled is left out: other code does not change it any more.
    """
    for name, value in vars(owner).items():
        if is_jitted(value):
            continue
        function = inspect.unwrap(getattr(value, "fget", getattr(value, "callback", value)))
        if isinstance(function, FunctionType) and function.__module__ == _module_of(owner):
            yield prefix + name, function
        elif isinstance(value, type) and value.__module__ == _module_of(owner):
            yield from _functions(value, f"{prefix}{name}.")


def _module_of(owner: ModuleType | type) -> str:
    """Return the name of the module that this is, or belongs to."""
    return owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
