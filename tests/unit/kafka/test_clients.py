"""Whether a task can make its clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import Unreachable
from app.kafka.backend import PLAIN
from app.kafka.clients import TaskClients
from app.model import Guarantee, Partition
from app.offsets.contract import StoreContext
from app.offsets.none import NoOffsets
from tests.fakes import make_task_config
from tests.integration.certificates import Authority

MAKERS: dict[str, Callable[[TaskClients], object]] = {
    "consumer": TaskClients.consumer,
    "offsets": TaskClients.offsets,
    "writer": lambda clients: clients.writer(Partition("raw", 0), NoOffsets(StoreContext("group", {}))),
}


@pytest.mark.parametrize("made", MAKERS)
def test_a_key_that_does_not_match_yet_is_an_outage(made: str, tmp_path: Path) -> None:
    """A task may begin, or a lane reopen, between the two writes that replace a certificate and its key."""
    authority = Authority(tmp_path, "ca")
    files = {"ssl.certificate.location": str(authority.sign("new")), "ssl.key.location": str(authority.sign("old"))}
    kafka = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "ssl"} | files
    config = replace(make_task_config(kafka=kafka), guarantee=Guarantee.AT_LEAST_ONCE)

    with (
        TaskClients(config, PLAIN) as clients,
        pytest.raises(Unreachable, match="key values mismatch"),
    ):
        MAKERS[made](clients)
