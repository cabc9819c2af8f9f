"""`winnow check --connect` without its command line."""

from __future__ import annotations

from app.config import Config
from app.driver.check import connected
from app.errors import Unreachable
from app.start import clients
from tests.support.waiting import without


def checked(config: Config) -> tuple[int, list[tuple[str, str]]]:
    """Return the exit code and what is said, each with its state. If Kafka takes too long to answer, ask again."""

    def check() -> tuple[int, list[tuple[str, str]]]:
        said = list[tuple[str, str]]()
        return connected(config, clients(config), lambda state, what: said.append((state, str(what)))), said

    return without(Unreachable, check, "a check that Kafka answers in time")
