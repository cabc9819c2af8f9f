"""The rules of imports and layers. Each failure prints the broken rule."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from app.offsets.registry import _STORES as STORES

ROOT = Path(__file__).parents[2]


class Rule(NamedTuple):
    sentence: str
    applies: Callable[[str], bool]
    forbids: Callable[[str], bool]


def within(*packages: str) -> Callable[[str], bool]:
    """Return whether a module lies in one of these packages. A rule about one that has moved would always hold."""
    ours = [ROOT / package.replace(".", "/") for package in packages if package.startswith(("app", "parsers"))]
    assert all(each.is_dir() or each.with_suffix(".py").is_file() for each in ours), packages
    return lambda name: any(name == package or name.startswith(f"{package}.") for package in packages)


def outside(*packages: str) -> Callable[[str], bool]:
    inside = within(*packages)
    return lambda name: not inside(name)


STORE_SEAM = tuple(
    f"app.offsets.{name}"
    for name in (
        "claim",
        "connections",
        "contract",
        "failures",
        "faults",
        "metadata",
        "migrate",
        "mirrors",
        "options",
        "registry",
        "testing",
        "times",
    )
)
"""The modules of the offset stores that others may import."""

FORMATS = tuple(
    f"parsers.{name}" for name in ("csv_lines", "delimited", "idc_access_log", "json_lines", "logfmt", "regex")
)
SHARED = ("app.model", "app.rates", "app.errors", "app.secrets", "app.cures")
RULES = [
    Rule(
        "parsers are pure: they import nothing of app, Spark or Kafka",
        within("parsers"),
        within("app", "pyspark", "confluent_kafka"),
    ),
    Rule(
        "the kernels serve the parsers: parsers.compiled imports none of them",
        within("parsers.compiled"),
        within(*FORMATS, "parsers.fields", "parsers.flume", "parsers.registry"),
    ),
    Rule("what formats share knows none of them", within("parsers.fields"), within(*FORMATS)),
    Rule(
        "formats know no envelope",
        within(*FORMATS, "parsers.fields"),
        within("parsers.flume"),
    ),
    Rule(
        "an envelope takes any parser: parsers.flume knows none",
        within("parsers.flume"),
        within(*FORMATS, "parsers.fields", "parsers.registry"),
    ),
    Rule(
        "the contract of a parser and its errors depend on no parser",
        within("parsers.contract", "parsers.errors"),
        lambda name: within("parsers")(name) and not within("parsers.contract", "parsers.errors")(name),
    ),
    Rule(
        "Numba's cache checks only a kernel's own file, so a kernel imports only parsers.compiled.jit of our modules",
        within("parsers.compiled.kernels", "app.kafka.bulk.kernels"),
        lambda name: within("app", "parsers")(name) and not within("parsers.compiled.jit")(name),
    ),
    Rule(
        "of the parsers only parsers.compiled imports Numba",
        lambda name: within("parsers")(name) and not within("parsers.compiled")(name),
        within("numba", "llvmlite"),
    ),
    Rule(
        "what crosses processes imports only the standard library and each other",
        within(*SHARED),
        lambda name: name.partition(".")[0] not in sys.stdlib_module_names and not within(*SHARED)(name),
    ),
    Rule("only app.spark imports pyspark", outside("app.spark"), within("pyspark", "py4j")),
    Rule(
        "only app.kafka, the demo and the embedded Kafka import confluent_kafka",
        outside("app.kafka", "app.demo", "app.embedded"),
        within("confluent_kafka"),
    ),
    Rule(
        "the demo's verification shares no code with the service",
        within("app.demo.verify", "app.demo.lines", "app.demo.vocabulary"),
        within("app.kafka", "app.offsets", "app.executor", "app.driver", "parsers"),
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
    Rule(
        "the executor and Kafka never import the configuration: they run in every Python worker",
        within("app.executor", "app.kafka"),
        within("app.config"),
    ),
    Rule(
        "the lists of Kafka's and Spark's properties are pure: they import only the standard library",
        within("app.kafka.properties", "app.spark.properties"),
        lambda name: name.partition(".")[0] not in sys.stdlib_module_names,
    ),
    Rule("the executor is free of Spark, so that a unit test can run it", within("app.executor"), within("app.spark")),
    Rule("a task does not import the status: it commits its counts", within("app.executor"), within("app.status")),
    Rule(
        "the status is a function of its snapshot: it imports no source of it",
        within("app.status"),
        within("app.driver", "app.executor", "app.kafka", "app.spark", "app.config"),
    ),
    Rule(
        "the driver knows Kafka and Spark only by their protocols",
        within("app.driver"),
        within("app.kafka", "app.spark"),
    ),
    Rule(
        "what a person does beside the service knows Kafka and Spark only by protocols",
        within("app.operate"),
        within("app.kafka", "app.spark", "app.executor"),
    ),
    Rule(
        "a command decides nothing: adapters come from app.start, use cases from app.operate",
        within("app.cli"),
        within("app.kafka", "app.offsets", "app.driver.round"),
    ),
    Rule(
        "nothing outside the command line imports what a person does beside the service",
        outside("app.cli", "app.operate"),
        within("app.operate"),
    ),
    Rule(
        "Kafka's clients import neither the driver nor the executor: they only implement their protocols",
        within("app.kafka", "app.offsets"),
        within("app.driver", "app.executor", "app.spark", "app.status"),
    ),
    Rule(
        "Kafka's clients use the offset stores, never the other way round",
        within("app.offsets"),
        within("app.kafka"),
    ),
    Rule(
        "the offset stores are found by name: no module imports one",
        lambda name: True,
        lambda name: (
            name == "app.kafka.offsets"
            or (within("app.offsets")(name) and not within(*STORE_SEAM)(name) and name != "app.offsets")
        ),
    ),
]


@cache  # not at import: each process that collects the tests would parse all sources
def modules() -> dict[str, ast.Module]:
    files = [file for folder in ("app", "parsers") for file in sorted((ROOT / folder).rglob("*.py"))]
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    return {name: ast.parse(file.read_text()) for name, file in zip(names, files, strict=True)}


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("rule", RULES, ids=[rule.sentence for rule in RULES])
def test_import_rules(rule: Rule) -> None:
    """The imports follow the layout in DESIGN.md."""
    broken = [
        f"{module} imports {name}"
        for module, tree in modules().items()
        if rule.applies(module)
        for name in imports(tree)
        if rule.forbids(name)
    ]

    assert not broken, f"{rule.sentence}: {broken}"


def test_no_test_imports_another() -> None:
    """What tests share has a module of its own, so that each test module can be read and changed alone."""
    broken = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in (ROOT / "tests").rglob("*.py")
        for name in imports(ast.parse(file.read_text()))
        if any(part.startswith("test_") for part in name.split("."))
    }

    assert not broken


def test_one_file_owns_the_transaction() -> None:
    """Only one file begins, commits and aborts transactions."""
    owners = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "app").rglob("*.py")
        if re.search(r"\b(begin|commit|abort)_transaction\(", file.read_text())
    }

    assert {"app/kafka/writers.py"} == owners


def test_the_client_library_of_a_store_is_imported_only_in_its_file() -> None:
    """A store is one file, and only that file imports the store's library."""
    ours = {"app", "parsers", *sys.stdlib_module_names}
    stores = [name for name in modules() if within("app.offsets")(name) and not within(*STORE_SEAM)(name)]
    imported = {name: {each.partition(".")[0] for each in imports(tree)} for name, tree in modules().items()}
    libraries = {library for store in stores for library in imported[store] - ours}

    importers = {library: [name for name in modules() if library in imported[name]] for library in libraries}

    assert {"redis", "pymysql", "kazoo", "happybase", "fsspec"} <= libraries
    assert all(len(names) == 1 for names in importers.values()), importers


def test_the_import_graph_has_no_cycle() -> None:
    """No module imports itself through others, not even lazily."""
    graph = {
        name: {other for other in imports(tree) if other in modules()} - {name} for name, tree in modules().items()
    }
    left = dict(graph)
    while grounded := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in grounded:
            del left[name]

    assert not left, f"in a circle, or above one: {sorted(left)}"


MOST_PUBLIC = 12


def test_no_class_does_too_much() -> None:
    """A class has at most MOST_PUBLIC public methods and properties. Fields do not count, nor do protocols."""
    classes = {f"{module}.{node.name}": node for module, tree in modules().items() for node in classes_in(tree)}
    larger = {name for name, node in classes.items() if len(public(node)) > MOST_PUBLIC}

    assert not larger


def classes_in(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """Return the classes of a module that are not protocols."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not any(ast.unparse(base).startswith("Protocol") for base in node.bases):
            yield node


def public(node: ast.ClassDef) -> set[str]:
    """Return the public methods and properties of a class."""
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in methods if not name.startswith("_")}


def test_a_class_name_means_one_thing() -> None:
    """No two classes have the same name."""
    nodes = (node for tree in modules().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    counts = Counter(node.name for node in nodes)

    assert set() == {name for name, count in counts.items() if count > 1}


def test_offsets_move_only_in_one_file() -> None:
    """Only the store in Kafka moves the group's offsets."""
    movers = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "app").rglob("*.py")
        if re.search(
            r"\.commit\(\s*offsets|asynchronous=|store_offsets\(|alter_consumer_group_offsets\(|send_offsets_to_transaction\(",
            file.read_text(),
        )
    }

    assert {"app/kafka/offsets.py"} == movers


def test_the_environment_is_read_at_the_edge() -> None:
    """Only the command line, the configuration and the demo's set-up read the environment."""
    readers = {
        name
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "argv")
    }

    assert readers <= {
        "app.cli.run",
        "app.config.reading",
        "app.embedded.jars",
        "app.demo.show",
        "app.embedded.broker",
        "app.embedded.process",
    }, readers


def loaded_by(module: str, *suspects: str) -> set[str]:
    """Import a module in a new interpreter; return which of the suspects it loads."""
    program = f"import sys, {module}; print(*({set(suspects)!r} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(printed.stdout.split())


def test_the_task_loads_without_spark() -> None:
    """Importing the task loads neither pyspark, Kafka's client nor an HTTP server."""
    suspects = ("pyspark", "py4j", "confluent_kafka", "http.server")
    assert set() == loaded_by("app.executor.task", *suspects)


@pytest.mark.parametrize("module", ["app.executor.task", "app.kafka.clients"])
def test_a_worker_loads_without_the_configuration(module: str) -> None:
    """A Python worker receives its settings, so it loads neither pydantic nor YAML."""
    assert set() == loaded_by(module, "pyspark", "pydantic", "pydantic_core", "yaml")


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def declared(*extras: str) -> set[str]:
    """Return the libraries that pyproject.toml requires, by default and with these extras."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    return {re.split(r"[^\w-]", line)[0].lower() for line in lines} - {PROJECT["name"]}


def test_every_optional_store_names_its_extra() -> None:
    """The error for a missing client can name its extra: each extra but S3's belongs to a store."""
    named = {extra for line in STORES.built_in.values() for extra in re.findall(r"\[(\w+)]", line)}

    assert named == {extra for extra in PROJECT["optional-dependencies"] if extra not in ("s3", "stores")}


def test_every_dependency_is_imported() -> None:
    """pyproject.toml requires no library that is not imported."""
    imported = {name.partition(".")[0] for tree in modules().values() for name in imports(tree)}
    expected = {name: {"pyyaml": "yaml"}.get(name, name.replace("-", "_")) for name in declared()}

    assert set() == {name for name, module in expected.items() if module not in imported}


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("docker/requirements.lock", []),
        ("docker/image.lock", [*PROJECT["optional-dependencies"]]),
        ("tests/requirements.lock", [*PROJECT["optional-dependencies"]]),
    ],
)
def test_a_lock_holds_the_dependencies_of_pyproject(lock: str, extras: list[str]) -> None:
    """Each dependency is locked for the project itself, the optional ones for the image and the tests, and no lock names a host."""
    text = (ROOT / lock).read_text()
    pinned = re.findall(r"^([\w-]+)==(.*?)(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)

    assert declared(*extras) == {
        name for name, rest in pinned if re.search(r"winnow-kafka \(pyproject\.toml\)$", rest, re.MULTILINE)
    }
    assert "://" not in text
