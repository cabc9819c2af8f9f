"""
Tries all mutants of some modules, or a sample, and lists those that no test noticed.

The quick tests come first. What they do not notice is tried again by slower ones, which need a Kafka or an offset store's server.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from app.embedded.broker import Broker
from tests.mutants.mutants import Mutant, mutants_of
from tests.mutants.trials import Trials
from tests.support.java import quick_java

MODULES = ("app", "parsers")
QUICK = "tests/unit", "tests/schedules/test_model.py", "tests/schedules/test_simulation.py"
# Only tests that run the product in their own process: a mutant that another process runs would not be seen to be reached.
ON_SERVERS = Path(__file__).with_name("on_servers.txt")
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
ENOUGH = 0.95


def modules_in(paths: Iterable[str]) -> list[Path]:
    """Return the modules among these files and in these folders."""
    return [each for path in map(Path, paths) for each in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]


def listed() -> Mapping[str, Mapping[str, str]]:
    """Return the reason of each equivalent mutant, by module and name."""
    return tomllib.loads(EQUIVALENT.read_text())


def without_equivalent(mutants: Sequence[Mutant], reasons: Mapping[str, str]) -> list[Mutant]:
    """
    Return the mutants of one module that a test could notice.

    Raises:
        ValueError: the list names a mutant that no longer exists.
    """
    if gone := reasons.keys() - {mutant.name for mutant in mutants}:
        msg = f"{EQUIVALENT.name} names mutants that do not exist (any more): {'; '.join(sorted(gone))}"
        raise ValueError(msg)
    return [mutant for mutant in mutants if mutant.name not in reasons]


def mutants_to_try(paths: Iterable[str]) -> list[Mutant]:
    """Return the mutants of these modules that are not equivalent."""
    reasons = listed()
    return [
        mutant
        for path in modules_in(paths)
        for mutant in without_equivalent(mutants_of(str(path), path.read_bytes()), reasons.get(str(path), {}))
    ]


def main() -> int:
    """Hunt. Return 0 if enough mutants are noticed."""
    options = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    options.add_argument("paths", nargs="*", default=MODULES, help="modules and folders of app/ and parsers/")
    options.add_argument("--sample", type=int, metavar="N", help="try only N mutants, chosen by --seed")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--tests", nargs="+", metavar="FILE", help="run only these test modules")
    chosen = options.parse_args()
    mutants = mutants_to_try(chosen.paths)
    if chosen.sample is not None:
        # In the order of modules, because kernels are compiled again whenever their module's file changes.
        sample = random.Random(chosen.seed).sample(range(len(mutants)), min(chosen.sample, len(mutants)))
        mutants = [mutants[number] for number in sorted(sample)]
    survivors = hunt(mutants, chosen.tests or QUICK)
    if survivors and not chosen.tests:
        print("what no quick test noticed is tried on real servers now")
        # As in `tests.conftest`, which cannot be imported before pytest's plugins.
        steady = {"broker.session.timeout.ms": "60000"}
        with Broker(properties=steady, java=quick_java()) as broker:
            os.environ["TEST_KAFKA_BROKER"] = broker.bootstrap
            survivors = hunt(survivors, ON_SERVERS.read_text().split())
    share = 1 - len(survivors) / max(1, len(mutants))
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants noticed: {share:.1%} (wanted: {ENOUGH:.0%})")
    return 0 if share >= ENOUGH else 1


def hunt(mutants: Sequence[Mutant], tests: Sequence[str]) -> list[Mutant]:
    """Try mutants. Print the survivors as they are found, then the number of noticed mutants of each module."""
    survivors: list[Mutant] = []
    done = itertools.count(1)

    def tried(mutant: Mutant, noticed: bool) -> None:
        if not noticed:
            survivors.append(mutant)
            print(f"not noticed: {mutant}", flush=True)
        if sys.stderr.isatty():
            print(f"{next(done)} of {len(mutants)} tried", end="\r", file=sys.stderr)

    began = time.monotonic()
    Trials(mutants, tried, tests).run()
    unnoticed = Counter(mutant.path for mutant in survivors)
    for path, count in sorted(Counter(mutant.path for mutant in mutants).items()):
        print(f"{path}: {count - unnoticed[path]} of {count} noticed")
    print(f"{time.monotonic() - began:.0f} s")
    return survivors


if __name__ == "__main__":
    sys.exit(main())
