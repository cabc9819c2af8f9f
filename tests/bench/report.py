"""What the benchmarks print: progress for the person who waits, Markdown tables for the README."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence


def say(message: str) -> None:
    """Tell the person who waits."""
    sys.stderr.write(f"{message}\n")


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [titles, ["---"] * len(titles), *rows])


def spread(numbers: Sequence[float], form: str) -> str:
    """Return the median and, where there are several numbers, the lowest and the highest."""
    if not any(numbers):
        return "-"
    middle = format(statistics.median(numbers), form)
    return middle if len(numbers) == 1 else f"{middle} ({min(numbers):{form}} to {max(numbers):{form}})"


def percentile(numbers: Sequence[float], percent: float) -> float:
    """Return the smallest number that is not below so many percent of them (nearest rank)."""
    ranked = sorted(numbers)
    return ranked[max(0, -int(-len(ranked) * percent // 100) - 1)]
