"""
Compares three views of a service: its status page, `winnow lag`, and `winnow check --connect`.

They must name the same partitions as those with a problem, and know for how long the records of each partition wait.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos import commands
from tests.chaos.cluster import System, until
from tests.chaos.driver import Driver

AGREE_SECONDS = 300.0
"""Each view is a look of its own at a fault that may just have begun; on a busy machine a command takes many seconds."""
PAGE = "status_page_up"
ANSWER_SECONDS = 30.0
TROUBLE = ("blocked", "waits")
"""The states by which `winnow check` names partitions."""
NAMED = re.compile(r"(.+?-\d+)(@\d+)?: ")


class Views(NamedTuple):
    """The partitions with a problem, by view; and those of which no age of the waiting records is known."""

    problems: dict[str, frozenset[str]]
    ageless: dict[str, frozenset[str]]

    @property
    def agree(self) -> bool:
        """Whether all name the same partitions."""
        return len(set(self.problems.values())) == 1


def expect_agreement(system: System, driver: Driver, why: str) -> None:
    """Wait until the views of a running service agree; record it if they do not."""
    seen: list[Views] = []

    def agreed() -> bool:
        if not driver.alive:
            return True  # it has no page any more
        with contextlib.suppress(OSError):  # nor has it one yet, or it is busy
            seen.append(_look(system.code, driver))
        return bool(seen) and seen[-1].agree and not any(seen[-1].ageless.values())

    if until(agreed, AGREE_SECONDS):
        return
    assert seen, "the service has no status page"
    last = seen[-1]
    for anomaly, found, wrong in (
        ("disagree", last.problems, not last.agree),
        ("unknown", last.ageless, any(last.ageless.values())),
    ):
        if wrong:
            told = ", ".join(f"{view}: {sorted(partitions)}" for view, partitions in found.items())
            system.recorder.record("seen", anomaly=anomaly, what=f"{why}: {told}")


def _look(code: Path, driver: Driver) -> Views:
    url = next((page["url"] for page in driver.logged(PAGE)), None)
    if url is None:
        msg = "it has not started yet"
        raise ConnectionError(msg)
    with urllib.request.urlopen(f"{url}api/status", timeout=ANSWER_SECONDS) as answer:
        status = json.load(answer)["partitions"]
    lag = commands.run(code, driver.file, "lag", "--json").value.get("partitions", [])
    check = commands.run(code, driver.file, "check", "--connect", "--json").value.get("findings", [])
    problems = {
        "status": _with_problem(status),
        "lag": _with_problem(lag),
        "check": frozenset(
            found[1] for each in check if each["state"] in TROUBLE and (found := NAMED.match(each["what"]))
        ),
    }
    waiting = {"status": [each for each in status if not each["problem"]], "lag": lag}
    return Views(problems, {view: _ageless(each) for view, each in waiting.items()})


def _with_problem(partitions: Iterable[dict[str, Any]]) -> frozenset[str]:
    return frozenset(_name(each) for each in partitions if each["problem"])


def _ageless(partitions: Iterable[dict[str, Any]]) -> frozenset[str]:
    return frozenset(_name(each) for each in partitions if each["lag"] and each["lag_seconds"] is None)


def _name(partition: dict[str, Any]) -> str:
    return f"{partition['topic']}-{partition['partition']}"
