"""Who may import whom. Each failure prints the sentence of the broken rule."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Rule(NamedTuple):
    sentence: str
    applies: Callable[[str], bool]
    forbids: Callable[[str], bool]


def within(*packages: str) -> Callable[[str], bool]:
    return lambda name: any(name == package or name.startswith(f"{package}.") for package in packages)


def outside(*packages: str) -> Callable[[str], bool]:
    return lambda name: not within(*packages)(name)


RULES = [
    Rule(
        "parsers are pure: they import nothing of app, Spark or Kafka",
        within("parsers"),
        within("app", "pyspark", "confluent_kafka"),
    ),
    Rule(
        "model and errors cross processes: they import only the standard library and each other",
        within("app.model", "app.errors"),
        lambda name: (
            name.partition(".")[0] not in sys.stdlib_module_names and not within("app.model", "app.errors")(name)
        ),
    ),
    Rule("only app.spark imports pyspark", outside("app.spark"), within("pyspark", "py4j")),
    Rule(
        "only app.kafka imports confluent_kafka, and what must share no code with it: the demo and the embedded broker",
        outside("app.kafka", "app.demo", "app.embedded"),
        within("confluent_kafka"),
    ),
    Rule(
        "the demo's verification shares no code with what it verifies",
        within("app.demo.verify", "app.demo.lines", "app.demo.vocabulary", "app.demo.faults"),
        within("app.kafka", "app.executor", "app.driver", "parsers"),
    ),
    Rule(
        "nothing outside the command line imports the demo",
        outside("app.cli", "app.demo"),
        within("app.demo"),
    ),
    Rule(
        "nothing outside the command line and the demo imports the embedded Kafka",
        outside("app.cli", "app.demo", "app.embedded"),
        within("app.embedded"),
    ),
    Rule(
        "the driver decides: it does not import the executor",
        within("app.driver"),
        within("app.executor"),
    ),
    Rule(
        "the executor works: it does not import the driver",
        within("app.executor"),
        within("app.driver"),
    ),
    Rule("the executor is free of Spark, so that a unit test can run it", within("app.executor"), within("app.spark")),
]


def modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("app", "parsers"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            yield name, ast.parse(file.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


MODULES = dict(modules())


@pytest.mark.parametrize("rule", RULES, ids=[rule.sentence for rule in RULES])
def test_import_rules(rule: Rule) -> None:
    """The layout is what DESIGN.md says it is."""
    broken = [
        f"{module} imports {name}"
        for module, tree in MODULES.items()
        if rule.applies(module)
        for name in imports(tree)
        if rule.forbids(name)
    ]

    assert not broken, f"{rule.sentence}: {broken}"


def test_one_file_owns_the_transaction() -> None:
    """begin, commit and abort of transactions stand in one file."""
    owners = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "app").rglob("*.py")
        if re.search(r"\b(begin|commit|abort)_transaction\(", file.read_text())
    }

    assert {"app/kafka/writers.py"} == owners


def test_offsets_move_in_one_file_only() -> None:
    """No plain commit hides anywhere: offsets are sent in transactions, or by the at-least-once writer."""
    movers = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "app").rglob("*.py")
        if re.search(
            r"\.commit\(\s*offsets|asynchronous=|store_offsets\(|alter_consumer_group_offsets\(|send_offsets_to_transaction\(",
            file.read_text(),
        )
    }

    assert {"app/kafka/writers.py"} == movers


def test_the_environment_is_read_at_the_edge() -> None:
    """Only the command line, the configuration and the demo's set-up look at the environment."""
    readers = {
        name
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "argv")
    }

    assert readers <= {
        "app.cli",
        "app.config",
        "app.embedded.jars",
        "app.demo.show",
        "app.embedded.broker",
        "app.embedded.process",
        "parsers.jit",
    }, readers


def test_the_task_loads_without_spark() -> None:
    """Importing the task in a fresh interpreter loads neither pyspark nor Kafka's client."""
    program = "import sys, app.executor.task; print({'pyspark', 'py4j', 'confluent_kafka'} & set(sys.modules))"

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    assert "set()" == printed.stdout.strip()
