"""Prints a summary of a history, and tables of its anomalies and faults."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from rich.console import Console, Group
from rich.table import Table

from tests.chaos.checker import Finding, judge, telling
from tests.chaos.grouped import NOBODY, SINK, History
from tests.chaos.resources import Slope, slopes
from tests.chaos.waits import Stall, idle_windows, pauses, stalls

REPAIR_SECONDS = 5.0
"""A stall that begins within this time after a repair counts for that fault."""


def report(history: History, console: Console) -> list[Finding]:
    """Print the report; return the anomalies that were found."""
    findings, taken = judge(history), list(slopes(history.samples))
    console.print(Group(_summary(history), _anomalies(findings), _faults(history), _resources(taken)))
    growths = [Finding("grows", 1, (f"{each.measure} of a {each.kind}",)) for each in taken if each.grows]
    return [finding for finding in findings if finding.times] + growths


def _summary(history: History) -> str:
    written = {
        outcome: sum(map(len, (n for s in streams.values() for n in s))) for outcome, streams in history.written.items()
    }
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(written.items()))
    got = {reader: sum(run.records for run in history.reads.get((reader, SINK), ())) for reader in history.readers}
    longest = max(stalls(history), key=lambda stall: stall.seconds, default=Stall("none", 0, 0, 0))
    idle = idle_windows(history)
    return "\n".join(
        [
            f"seed {history.setup.get('seed', '-')}, arm {history.setup.get('arm')}, {history.ends_at:.0f} s, {len(history.faults)} faults",
            f"lines written: {outcomes}",
            f"kills: {_kills(history)}",
            "lines in the sink: " + ", ".join(f"{count:,} ({reader})" for reader, count in got.items()),
            f"longest stall of readers: {longest.seconds:.1f} s at {longest.began:.0f} s ({longest.where})",
            f"minutes without progress: {', '.join(f'{at:.0f} s' for at in idle) or 'none'}",
        ]
    )


def _kills(history: History) -> str:
    """Return the number of kills by kind, without those that met nobody; brokers are counted one by one."""
    killed = Counter(
        fault.name + (f" ({fault.target})" if fault.target.startswith("node") else "")
        for fault in history.faults
        if "killed" in fault.name and fault.target != NOBODY
    )
    return f"{killed.total()}: " + ", ".join(f"{times} {name}" for name, times in sorted(killed.items()))


def _anomalies(findings: list[Finding]) -> Table:
    table = Table("anomaly", "found", "where", title="Anomalies", title_justify="left")
    for finding in findings:
        table.add_row(finding.name, str(finding.times), "\n".join(finding.examples))
    return table


def _faults(history: History) -> Table:
    columns = (
        "fault",
        "times",
        "met nobody",
        "longest stall, s",
        "of it after the repair, s",
        "told after, s",
        "the spared waited, s",
    )
    table = Table(*columns, title="Faults", title_justify="left")
    told = told_after(history)
    spared: dict[str, list[str]] = defaultdict(list)
    for pause in pauses(history):
        spared[pause.fault.name].append(f"{pause.whole:.1f} ({pause.settled:.1f})")
    for name, times, worst, after in fault_rows(history):
        heard = ", ".join(f"{each:.1f}" for each in told[name])
        table.add_row(
            name, str(times), str(history.missed[name]), f"{worst:.1f}", f"{after:.1f}", heard, ", ".join(spared[name])
        )
    return table


def _resources(taken: Iterable[Slope]) -> Table:
    """Return what the processes took during the run, in stretches of five minutes."""
    columns = "process", "measure", "mean", "per hour", "noise (±)", "stretches"
    table = Table(*columns, title="Resources", title_justify="left")
    for each in taken:
        grown = f"{each.per_hour:+,.2f}" + (" grows" if each.grows else "")
        table.add_row(each.kind, each.measure, f"{each.mean:,.1f}", grown, f"{each.noise:,.2f}", str(each.stretches))
    return table


def told_after(history: History) -> dict[str, list[float]]:
    """Return for each kind of fault that must be told how many seconds after the harm that was the case."""
    found: dict[str, list[float]] = defaultdict(list)
    for fault in history.faults:
        if said := telling(history, fault):
            found[fault.name].append(max(0.0, said.at - fault.at))
    return found


def fault_rows(history: History) -> Iterator[tuple[str, int, float, float]]:
    """
    Yield for each kind of fault: its name, how often it was injected, the longest stall, and its part after a repair.

    A stall counts for the last fault before its end.
    """
    worst: dict[str, list[Stall]] = defaultdict(list)
    for stall in stalls(history):
        before = [
            fault for fault in history.faults if fault.at <= stall.ended and stall.began <= fault.until + REPAIR_SECONDS
        ]
        if before:
            worst[before[-1].name].append(stall)
    for name in sorted({fault.name for fault in history.faults}):
        times = sum(fault.name == name for fault in history.faults)
        longest = max((stall.seconds for stall in worst[name]), default=0.0)
        yield name, times, longest, max((stall.after_repair for stall in worst[name]), default=0.0)
