"""The plan of a round: every partition exactly once, balanced by load."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.driver.plan import IDLE_LOAD, heaviest, plan
from app.model import OffsetRange, Partition

partitions = st.builds(Partition, st.sampled_from(["a", "b"]), st.integers(0, 300))
loads = st.dictionaries(partitions, st.integers(0, 10_000_000), max_size=200)
slots = st.integers(1, 40)


def ranges(of: dict[Partition, int]) -> list[OffsetRange]:
    return [OffsetRange(partition, None, 0) for partition in of]


@given(loads, slots)
def test_every_partition_is_planned_exactly_once(of: dict[Partition, int], many: int) -> None:
    """No partition is missing and none has two owners."""
    tasks = plan(ranges(of), of, many)

    assert sorted(of) == sorted(offset_range.partition for task in tasks for offset_range in task)


@given(loads, slots)
def test_tasks_never_outnumber_the_slots_and_none_is_empty(of: dict[Partition, int], many: int) -> None:
    """A task without a slot would leave its partitions idle, and an empty task would waste a slot."""
    tasks = plan(ranges(of), of, many)

    assert min(many, len(of)) == len(tasks)
    assert all(tasks)


@given(loads, slots)
def test_the_heaviest_task_is_near_the_best_possible(of: dict[Partition, int], many: int) -> None:
    """The busiest task has at most 4/3 of the optimum (Graham's bound)."""
    tasks = plan(ranges(of), of, many)

    if tasks:
        weights = sorted((load + IDLE_LOAD for load in of.values()), reverse=True)
        # no plan beats the mean, the heaviest partition, or the two that must share a task if there is one too many
        crowded = weights[many - 1] + weights[many] if len(weights) > many else 0
        best = max(sum(weights) / len(tasks), weights[0], crowded)
        heaviest = max(sum(of[offset_range.partition] + IDLE_LOAD for offset_range in task) for task in tasks)
        assert heaviest <= best * 4 / 3 + 1 or heaviest <= sum(weights) / len(tasks) + weights[0]


@given(loads, slots)
def test_the_same_input_gives_the_same_plan(of: dict[Partition, int], many: int) -> None:
    """The order in which partitions are listed does not matter."""
    backwards = dict(reversed(of.items()))

    assert plan(ranges(of), of, many) == plan(ranges(backwards), backwards, many)


def test_one_busy_partition_has_a_task_to_itself() -> None:
    """Idle partitions go to the task with the lighter load."""
    of = {Partition("t", n): 0 for n in range(6)} | {Partition("t", 9): 1_000_000}

    first, second = plan(ranges(of), of, 2)

    assert [Partition("t", 9)] == [offset_range.partition for offset_range in first]
    assert 6 == len(second)


def test_ten_thousand_partitions_are_balanced_within_a_tenth() -> None:
    """A large plan is even: 10,000 partitions of very different load over 2,000 slots."""
    of = {Partition("t", n): (n * 7919) % 100_000 for n in range(10_000)}

    weights = [sum(of[offset_range.partition] for offset_range in task) for task in plan(ranges(of), of, 2_000)]

    assert max(weights) <= 1.1 * sum(weights) / len(weights)


def test_a_partition_without_a_load_is_planned_last() -> None:
    """Its output cannot be delivered. A task still owns it, but never as its first partition."""
    three = [OffsetRange(Partition("raw", number), 0, 0) for number in range(3)]

    (task,) = plan(three, {Partition("raw", 1): 0, Partition("raw", 2): 5}, 1)

    assert [2, 1, 0] == [each.partition.number for each in task]


def test_a_partition_without_a_load_weighs_what_an_idle_one_does() -> None:
    """It still has a lane, a producer and commits."""
    task = [OffsetRange(Partition("raw", 0), 0, 0)]

    assert IDLE_LOAD == heaviest([task], {}) == heaviest([task], {Partition("raw", 0): 0})
