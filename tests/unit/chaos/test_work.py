"""The harness's workers do what the product's do: a seam that the harness has copied tests what the product was then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.errors import Unreachable
from app.kafka.clients import TaskClients
from app.model import OffsetRange, Outcome, Partition
from app.spark import job
from tests.chaos import work
from tests.chaos.failpoints import Failpoints
from tests.chaos.work import CONTROLS, HonestClients
from tests.fakes import make_assignment, make_task_config

RANGE = OffsetRange(Partition("raw", 0), 0, 0)


@pytest.mark.parametrize("takes_over", [True, False])
def test_the_clients_get_what_the_product_gives_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, takes_over: bool
) -> None:
    """Whether the partitions are in use decides how a later service interrupts the one that it takes them from."""
    got: list[dict[str, Any]] = []

    class Away(HonestClients):
        def __init__(self, config: Any, points: Failpoints, **given: Any) -> None:
            got.append(given)
            super().__init__(config, points, **given)

        def consumer(self) -> Any:
            raise Unreachable("no broker responds")

    monkeypatch.setattr(job, "TaskClients", TaskClients)  # to restore it
    monkeypatch.setattr(work, "CONTROLS", {**CONTROLS, "away": Away})
    assignment = make_assignment(make_task_config(), RANGE)
    receipts = list(work.work([replace(assignment, takes_over=takes_over)], "away", str(tmp_path)))

    assert [Outcome.FAILED] == [receipt.outcome for receipt in receipts]
    assert [{"ranges": (RANGE,), "in_use": takes_over}] == got


@pytest.mark.parametrize("arm", CONTROLS)
def test_every_arm_takes_what_the_product_gives(arm: str, tmp_path: Path) -> None:
    """All of them are context managers, too."""
    with CONTROLS[arm](make_task_config(), Failpoints(tmp_path), ranges=(RANGE,), in_use=True) as clients:
        assert isinstance(clients, HonestClients)
