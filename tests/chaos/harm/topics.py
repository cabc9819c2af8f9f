"""Deletes a topic while brokers create topics by themselves; what is deleted must stay so until its owner creates it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.aside import Aside
from tests.chaos.cluster import System
from tests.chaos.harm.base import Harm
from tests.chaos.load import Load
from tests.chaos.views import expect_agreement


def _deleted(role: str, still: tuple[str, ...]) -> Harm:
    """Delete a topic; meanwhile the source topics `still` must be cleansed, and in the end both."""

    @contextmanager
    def deleted(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        with Aside(system) as aside:
            aside.write("raw", "more")
            aside.await_start("raw", "more")
            aside.delete(role)
            yield role
            aside.write("raw")
            aside.expect_it_stays_away(role)
            expect_agreement(system, aside.driver, f"without the topic {role}")
            aside.expect_all_cleansed(*still)
            aside.recreate(role)
            aside.write("raw", "more")
            aside.expect_all_cleansed("raw", "more")

    return deleted


@contextmanager
def deleted_while_paused(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Delete the dead letters of a paused service and create them again; it must go on only when a person resumes it."""
    with Aside(system) as aside:
        aside.write("raw")
        aside.await_start("raw")
        assert aside.command("pause").code == 0
        aside.recreate("dead")
        yield "dead"
        aside.write("raw")
        aside.expect_it_rests("raw")
        expect_agreement(system, aside.driver, "a paused service")
        assert aside.command("resume").code == 0
        aside.expect_all_cleansed("raw")


source_deleted = _deleted("more", still=("raw",))
sink_deleted = _deleted("clean", still=())
dead_letters_deleted = _deleted("dead", still=())
