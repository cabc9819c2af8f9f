"""Draws a history over time: throughput, lag, offsets in open transactions, and faults."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.chaos.checker import judge
from tests.chaos.grouped import DEAD, SINK, History
from tests.chaos.resources import MEASURES

BIN_SECONDS = 1.0
COLOURS = {"driver": "tab:blue", "JVM": "tab:orange", "worker": "tab:green"}


def draw(history: History, path: Path) -> None:
    """Draw the history into a PNG file."""
    mpl.use("agg")
    figure = Figure(figsize=(14, 9), layout="constrained")
    flow, lag, held, faults = figure.subplots(4, 1, sharex=True, height_ratios=(3, 2, 2, 4))
    _draw_flow(flow, history)
    _draw_lag(lag, history)
    _draw_held(held, history)
    _draw_faults(faults, history)
    found = ", ".join(f"{finding.times} {finding.name}" for finding in judge(history) if finding.times)
    figure.suptitle(
        f"Winnow, seed {history.setup.get('seed', '-')}, arm {history.setup.get('arm')}: {found or 'no anomaly'}"
    )
    figure.savefig(path, dpi=90)


def draw_resources(history: History, path: Path) -> None:
    """Draw what each process takes, a row for each measure."""
    mpl.use("agg")
    figure = Figure(figsize=(14, 12), layout="constrained")
    rows = figure.subplots(len(MEASURES), 1, sharex=True)
    for axes, measure in zip(rows, MEASURES, strict=True):
        lives: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        for sample in history.samples:
            if measure in sample.figures:
                lives[sample.kind, sample.pid].append((sample.at / 60, sample.figures[measure]))
        for (kind, _), points in lives.items():
            axes.plot(*zip(*points, strict=True), color=COLOURS[kind], linewidth=0.8)
        axes.set_ylabel(measure)
    for kind, colour in COLOURS.items():
        rows[0].plot([], [], color=colour, label=kind)
    rows[0].legend(loc="upper right")
    rows[-1].set_xlabel("minutes")
    figure.savefig(path, dpi=90)


def _draw_flow(axes: Axes, history: History) -> None:
    edges = np.arange(0, history.ends_at + BIN_SECONDS, BIN_SECONDS)
    written = np.array(history.writes or [(0, 0)])
    read = np.array(
        [(r.at, r.records) for role in (SINK, DEAD) for r in history.reads.get(("first", role), ())] or [(0, 0)]
    )
    for name, events in (("written", written), ("read", read)):
        rate, _ = np.histogram(events[:, 0], edges, weights=events[:, 1])
        axes.plot(edges[:-1], rate / BIN_SECONDS, label=name, linewidth=0.8)
    axes.set_ylabel("lines/s")
    axes.legend(loc="upper right")


def _draw_lag(axes: Axes, history: History) -> None:
    written = np.array(sorted(history.writes) or [(0, 0)])
    read = sorted((r.at, r.records) for role in (SINK, DEAD) for r in history.reads.get(("first", role), ()))
    got = np.array(read or [(0, 0)])
    times = np.arange(0, history.ends_at, BIN_SECONDS)
    total = [
        np.concatenate([[0], np.cumsum(each[:, 1])])[np.searchsorted(each[:, 0], times)] for each in (written, got)
    ]
    axes.fill_between(times, np.maximum(total[0] - total[1], 0), linewidth=0, alpha=0.6)
    axes.set_ylabel("written,\nnot read")


def _draw_held(axes: Axes, history: History) -> None:
    held: dict[float, int] = defaultdict(int)
    for marks in history.marks.values():
        for mark in marks:
            held[mark.at] += mark.high - mark.stable
    times = sorted(held)
    axes.fill_between(times, [held[at] for at in times], linewidth=0, alpha=0.6, color="tab:orange")
    axes.set_ylabel("offsets in open\ntransactions")


def _draw_faults(axes: Axes, history: History) -> None:
    names = sorted({fault.name for fault in history.faults}, reverse=True)
    for fault in history.faults:
        row = names.index(fault.name)
        axes.barh(row, max(fault.until - fault.at, 0.5), left=fault.at, height=0.7, color="tab:red")
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_xlabel("seconds")
