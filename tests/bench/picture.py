"""Draws the results of `make bench` side by side: records/s and CPU per record of every system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, OTHERS = "#2a7f62", "#9aa5b1"


class Bar(NamedTuple):
    """The bar of one system."""

    title: str
    records_per_second: float
    cpu_per_million: float
    ours: bool


def draw(bars: Sequence[Bar], title: str, file: Path) -> None:
    """Write the chart, fastest system first. The suffix of the file determines its format."""
    # Not at the top: importing Matplotlib takes a second in every process that collects the tests.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The same numbers produce the same file: no date, no random ids, text as text.
    mpl.rcParams.update({"svg.hashsalt": "winnow", "svg.fonttype": "none", "font.size": 9})
    figure = Figure(figsize=(9.5, 0.8 + 0.42 * len(bars)), layout="constrained")
    figure.suptitle(title, fontsize=10)
    left, right = figure.subplots(1, 2, sharey=True)
    fastest_last = sorted(bars, key=lambda bar: bar.records_per_second)
    _panel(left, "records/s (more is better)", fastest_last, lambda bar: bar.records_per_second, "{:,.0f}")
    _panel(
        right,
        "CPU-seconds per million records (less is better)",
        fastest_last,
        lambda bar: bar.cpu_per_million,
        "{:.2f}",
    )
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def _panel(axes: Axes, title: str, bars: Sequence[Bar], length: Callable[[Bar], float], form: str) -> None:
    drawn = axes.barh(
        [bar.title for bar in bars], [length(bar) for bar in bars], color=[OURS if bar.ours else OTHERS for bar in bars]
    )
    axes.bar_label(drawn, [form.format(length(bar)) for bar in bars], padding=3)
    axes.set_title(title, fontsize=9)
    axes.margins(x=0.2)
    axes.xaxis.set_visible(False)
    axes.tick_params(left=False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
