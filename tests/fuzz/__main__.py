"""
Searches for input that breaks the parsers, the configuration or the offsets' metadata.

Usage: python -m tests.fuzz [--seconds N] [--lines N] [--seed N] [--corpus FOLDER]

First libFuzzer searches for new paths through each target. Then millions of damaged lines go through both engines.
Finally the corpus and more lines go through the kernels between forbidden pages. It exits with 1 at the first finding.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.fuzz import lines
from tests.fuzz.formats import cases

ROOT = Path(__file__).parents[2]
FORMATS = ("csv", "json", "logfmt")
TARGETS = ("lines", "events", *FORMATS, "configuration", "offsets")
PARSED = ("lines", "events", *FORMATS)
"""The targets whose corpus also goes through the kernels."""
GUARDED_LINES = 100_000


def main() -> int:
    """Run the fuzzers that the command line asks for."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[1])
    options.add_argument("--seconds", type=int, default=60, help="how long libFuzzer works on each target (60)")
    options.add_argument("--lines", type=int, default=10_000_000, help="how many lines go through both engines")
    options.add_argument("--seed", type=int, default=int(time.time()), help="repeats a run")
    options.add_argument("--corpus", type=Path, default=ROOT / ".fuzz", help="where what was found stays (.fuzz)")
    chosen = options.parse_args()
    print(f"seed {chosen.seed}")
    folders = {target: chosen.corpus / target for target in TARGETS}
    if chosen.seconds:
        _plant(folders)
        for target, folder in folders.items():
            _guided(target, folder, chosen.seconds, chosen.seed)
    parsed = [folders[target] for target in PARSED if folders[target].exists()]
    corpus = [file.read_bytes() for folder in parsed for file in sorted(folder.iterdir())]
    _damaged(chosen.lines, chosen.seed, corpus)
    _guarded(chosen.seed, parsed)
    return 0


def _plant(folders: dict[str, Path]) -> None:
    """Seed the corpora with known values."""
    known, events = lines.seeds()
    configuration = (ROOT / "docker/winnow.yaml").read_bytes()
    metadata = (
        b"winnow/2 topic=5L6g since=100 in=42 out=41 dead=e:1 ib=14 ob=38 tx=8:2 read=43@2 by=h@17 sink=clean gen=2"
    )
    seeds = {name: list(cases()[name].lines) for name in FORMATS}
    seeds |= {"lines": known, "events": events, "configuration": [configuration], "offsets": [metadata]}
    for target, folder in folders.items():
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds[target]):
            (folder / f"seed-{number}").write_bytes(seed)


def _guided(target: str, folder: Path, seconds: int, seed: int) -> None:
    """Run libFuzzer on a target. New values go into the folder."""
    print(f"{target}: libFuzzer for {seconds} s", flush=True)
    options = [f"-max_total_time={seconds}", f"-seed={seed % 2**31 + 1}", "-timeout=60", "-rss_limit_mb=0"]
    options += [f"-artifact_prefix={folder.parent}/found-{target}-", "-verbosity=0", "-print_final_stats=1"]
    subprocess.run([sys.executable, "-m", "tests.fuzz.guided", target, *options, str(folder)], cwd=ROOT, check=True)


def _damaged(wanted: int, seed: int, corpus: list[bytes]) -> None:
    """Send lines through both engines, with one process per processor."""
    jobs = os.cpu_count() or 1
    began, total = time.monotonic(), Counter[str]()
    with ProcessPoolExecutor(jobs) as pool:
        runs = [pool.submit(lines.run, -(-wanted // jobs), seed + job, corpus) for job in range(jobs)]
        for run in runs:
            total += run.result()
    print(
        f"{total.total():,} lines in {time.monotonic() - began:.0f} s, each with one outcome, the same on both engines:"
    )
    print(*(f"  {outcome:18}{count:>12,}" for outcome, count in total.most_common()), sep="\n", flush=True)


def _guarded(seed: int, folders: list[Path]) -> None:
    """Send the corpus and more lines through the kernels between forbidden pages, as shipped and with bounds checks."""
    command = [sys.executable, "-m", "tests.fuzz.guarded", str(GUARDED_LINES), str(seed), *map(str, folders)]
    subprocess.run(command, cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory(prefix="winnow-fuzz-") as cache:
        checked = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": cache}
        subprocess.run(command, cwd=ROOT, env=checked, check=True)


if __name__ == "__main__":
    raise SystemExit(main())
