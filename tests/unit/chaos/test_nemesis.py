"""The nemesis injects all faults, in an order that the seed decides."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.chaos.arms import ARMS
from tests.chaos.cluster import FRAGILE, LONE, Size
from tests.chaos.controls import CONTROL_PLANS
from tests.chaos.driver import ROOT, lay_out
from tests.chaos.failpoints import POINTS, Failpoints
from tests.chaos.grouped import History
from tests.chaos.harm import clocks
from tests.chaos.harm.base import Missed, inflicted
from tests.chaos.harm.generations import kill_after_the_fence
from tests.chaos.harm.refusals import KINDS
from tests.chaos.harm.together import THEMES, parts
from tests.chaos.history import Recorder, events
from tests.chaos.nemesis import HARM, KILLS, ONCE, STORM, schedule
from tests.chaos.run import refusals_plans
from tests.chaos.work import CONTROLS
from tests.support.waiting import PATIENCE


def test_a_seed_repeats_its_faults() -> None:
    """The same seed gives the same faults in the same order; another seed another order."""
    first, again, other = (list(islice(schedule(list(HARM), random.Random(seed)), 200)) for seed in (1, 1, 2))

    assert first == again != other
    assert set(HARM) == set(first)
    assert [1] * len(ONCE) == [first.count(name) for name in ONCE]


@pytest.mark.parametrize("faults", [KILLS, STORM])
def test_every_fault_is_injected_as_often_as_listed(faults: Sequence[str]) -> None:
    """In a run that only injects the faults of a list, each turn has all of them."""
    turn = Counter(islice(schedule(faults, random.Random(1)), len(faults)))

    assert Counter(faults) == turn
    assert set(faults) <= set(HARM)


@pytest.mark.parametrize("cluster", [False, True])
def test_what_happens_at_once_has_different_themes(*, cluster: bool) -> None:
    """A seed decides two or three kinds of harm, no two of one theme; in the end each kind is chosen."""
    chosen = [parts(random.Random(seed), cluster=cluster) for seed in range(2_000)]

    assert chosen == [parts(random.Random(seed), cluster=cluster) for seed in range(2_000)]
    assert {2, 3} == set(map(len, chosen))
    assert all(
        sum(part.name in theme.kinds(cluster=cluster) for part in each) <= 1 for each in chosen for theme in THEMES
    )
    every = {name for theme in THEMES for name in theme.kinds(cluster=cluster)}
    assert every == {part.name for each in chosen for part in each} <= HARM.keys()


@pytest.mark.parametrize("apart", [False, True])
def test_a_refusal_runs_as_often_as_wished_on_a_system_that_can_have_it(*, apart: bool) -> None:
    """Kinds that need the same system share one, unless they are to be apart."""
    plans = refusals_plans(list(KINDS), 3, seed=1, apart=apart, product=Path("/other"))

    assert Counter(dict.fromkeys(KINDS, 3)) == Counter(name for plan in plans for name in plan.faults)
    assert all(KINDS[name].size is plan.size for plan in plans for name in plan.faults)
    assert all(KINDS[name].arm == plan.arm for plan in plans for name in plan.faults)
    assert {Path("/other")} == {plan.product for plan in plans}
    assert (len(KINDS) if apart else 7) == len(plans)


def test_what_the_log_must_say_is_a_pattern() -> None:
    """Each kind of harm is known to the nemesis, and its word is a regular expression."""
    assert KINDS.keys() <= HARM.keys()
    assert all(re.compile(kind.told).pattern == kind.told for kind in KINDS.values())


def test_lone_partitions_lie_on_one_node() -> None:
    """The node that is killed holds the lone partitions and nothing else; all partitions have equally many replicas."""
    for role, lone in LONE.items():
        replicas = FRAGILE.replicas[role]

        assert [number for number, nodes in enumerate(replicas) if lone.node in nodes] == list(lone.partitions)
        assert {1} == set(map(len, replicas))


def test_every_control_arm_exists() -> None:
    """A control arm has other clients or another part of the product, and its faults exist."""
    for name, control in CONTROL_PLANS.items():
        assert name in CONTROLS or name in ARMS
        assert set(control.faults) <= HARM.keys()


WHAT_THE_ARMS_ADD = """
import sys, app.spark.job, app.start
from tests.chaos.arms import ARMS

def names():
    modules = [(name, module) for name, module in sys.modules.items() if name.startswith("app.")]
    classes = [(f"{name}.{each}", kind) for name, module in modules for each, kind in vars(module).items()
               if isinstance(kind, type) and kind.__module__ == name]
    return {f"{where}.{name}" for where, part in modules + classes for name in dir(part)}

before = names()
for arm in ARMS.values():
    arm.in_driver(), arm.in_worker()
print(names() - before)
"""


def test_what_an_arm_replaces_exists() -> None:
    """In a process of its own, because the product stays broken. A name that is new replaces nothing."""
    done = subprocess.run(
        [sys.executable, "-c", WHAT_THE_ARMS_ADD], check=True, cwd=ROOT, capture_output=True, text=True
    )

    assert "set()\n" == done.stdout


def test_the_product_of_another_checkout(tmp_path: Path) -> None:
    """`app` and `parsers` are imported from the checkout, `tests` from here."""
    checkout = tmp_path / "checkout"
    for package in ("app", "parsers", "tests"):
        (checkout / package).mkdir(parents=True)
        (checkout / package / "__init__.py").write_text("")
    code = lay_out(checkout, tmp_path / "run")
    program = "import app, parsers, tests.chaos.driver as d; print(app.__file__, parsers.__file__, d.__name__)"

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert [f"{code}/app/__init__.py", f"{code}/parsers/__init__.py", "tests.chaos.driver"] == done.stdout.split()
    assert (checkout / "app").samefile(code / "app")


def test_only_one_worker_is_hit(tmp_path: Path) -> None:
    """An armed point hits the first process that passes it, and reports its pid; it spares the next one."""
    program = f"from tests.chaos.failpoints import *\nwith Failpoints({str(tmp_path)!r}).around('send'): print('sent')"
    points = Failpoints(tmp_path)
    points.arm("before-send", signal.SIGKILL)

    first, second = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False) for _ in range(2)
    )

    assert (-signal.SIGKILL, "") == (first.returncode, first.stdout)
    assert (0, "sent\n") == (second.returncode, second.stdout)
    assert points.await_hit("before-send", PATIENCE)
    assert "before-send" in POINTS


def test_harm_that_met_nobody_is_recorded(tmp_path: Path) -> None:
    """It is repaired and recorded as a fault, and the run goes on."""

    @contextmanager
    def harm(*_: object) -> Iterator[str]:
        yield "somebody"
        raise Missed("no request 26 was held")

    with Recorder(tmp_path / "history.jsonl.gz") as recorder:
        system: Any = SimpleNamespace(recorder=recorder, state=dict)
        with inflicted("EndTxn held", harm, system, SimpleNamespace(), random.Random(1)):  # type: ignore[arg-type]
            pass

    history = History.of(events(tmp_path / "history.jsonl.gz"))
    assert ["somebody"] == [fault.target for fault in history.faults]
    assert {"EndTxn held": 1} == history.missed
    assert ["fault", "missed", "healed"] == [event["kind"] for event in events(tmp_path / "history.jsonl.gz")]


PASSING = "import time\nwhile True:\n    with Failpoints({!r}).around('init'):\n        time.sleep(0.01)"


def test_only_a_worker_of_the_later_service_is_killed(tmp_path: Path) -> None:
    """The workers of both services pass the point again and again; those of the earlier one go on."""
    program = f"from tests.chaos.failpoints import *\n{PASSING.format(str(tmp_path))}"
    worker = [sys.executable, "-c", program]
    below = f"import subprocess, sys\nsys.exit(subprocess.run({worker!r}).returncode)"

    with subprocess.Popen(worker) as earlier, subprocess.Popen([sys.executable, "-c", below]) as driver:
        try:
            assert kill_after_the_fence(driver.pid, Failpoints(tmp_path))

            assert driver.wait(PATIENCE)
            assert psutil.Process(earlier.pid).status() != psutil.STATUS_STOPPED
        finally:
            earlier.kill()


@pytest.mark.parametrize(("forked", "set_"), [(True, {"driver"}), (False, {"driver", "workers"})])
def test_a_clock_that_jumps_is_somebodys(monkeypatch: pytest.MonkeyPatch, *, forked: bool, set_: set[str]) -> None:
    """Forked workers have the driver's clock; theirs would be nobody's."""
    jumped: Counter[str] = Counter()
    clocks_set = SimpleNamespace(set=lambda who, seconds: jumped.update([who] if abs(seconds) <= 3_600 else []))
    system: Any = SimpleNamespace(size=Size(forked=forked), clocks=clocks_set, partitions=1)
    monkeypatch.setattr(clocks, "expect_progress", lambda *_: None)
    monkeypatch.setattr("time.sleep", lambda _: None)

    for seed in range(20):
        with clocks.jump(system, SimpleNamespace(), random.Random(seed)):  # type: ignore[arg-type]
            pass

    assert set_ == jumped.keys()
    assert not forked or 40 == jumped.total()
