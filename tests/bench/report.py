"""What the benchmarks print: progress on stderr, and Markdown tables for RESULTS.md."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence


def say(message: str) -> None:
    """Print progress on stderr."""
    sys.stderr.write(f"{message}\n")


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [titles, ["---"] * len(titles), *rows])


def spread(numbers: Sequence[float], form: str) -> str:
    """Return the median, and the lowest and highest of several numbers. Return a dash if all are 0."""
    if not any(numbers):
        return "-"
    middle = format(statistics.median(numbers), form)
    return middle if len(numbers) == 1 else f"{middle} ({min(numbers):{form}} to {max(numbers):{form}})"


def percentile(numbers: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile: the smallest number that `percent` of them do not exceed."""
    ranked = sorted(numbers)
    return ranked[max(0, -int(-len(ranked) * percent // 100) - 1)]
