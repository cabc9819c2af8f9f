"""The documentation matches the code: what it names exists, what exists is named, and each link leads somewhere."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from app.cli import main
from app.config import load
from app.config.model import Config, keys_of
from app.events import Event
from app.executor.parse import PARSER_ERROR, REFUSED, TOO_LARGE
from parsers import registry
from parsers.flume.envelope import REASON as ENVELOPE
from parsers.idc_access_log import IdcAccessLog
from tests.chaos.controls import CONTROL_PLANS
from tests.support.commands import LEAVES
from tests.support.docs import FRAME, PAGES, ROOT, anchors, commands, fenced, links, resolved
from tests.support.reference import all_metrics, keys

TEXTS = {name: (ROOT / name).read_text() for name in (*FRAME, *PAGES)}
EXPLAIN = [
    "DESIGN.md",
    *(page for page in PAGES if page.startswith(("docs/decisions/", "docs/librdkafka", "docs/dev"))),
]
"""What names tests, control arms and files of the repository."""
KIB = 1024
LIMITS = {"README.md": 9 * KIB, "DESIGN.md": 13 * KIB, **dict.fromkeys(PAGES, 15 * KIB)}
MAKEFILE = (ROOT / "Makefile").read_text()

TO_WRITE = "TO WRITE"

in_each_page = pytest.mark.parametrize("page", TEXTS)


def table(heading: str, rows: Iterator[tuple[str, ...]]) -> str:
    rule = re.sub(r"[^|]+", " --- ", heading).strip()
    return "\n".join([f"| {heading} |", f"| {rule} |", *(f"| {' | '.join(row)} |" for row in rows)])


def key_table() -> str:
    rows = ((f"`{key}`", f"`{default}`" if default else "", meaning) for key, default, meaning in keys())
    return table("key | default | meaning", rows)


def metric_table() -> str:
    rows = ((f"`{name}`", labels, meaning) for name, labels, meaning in all_metrics())
    return table("metric | labels | meaning", rows)


def event_table() -> str:
    """The page itself says when an event is logged."""
    said = dict(re.findall(r"^\| (`\w+`) \|.*\| (.+) \|$", between(TEXTS["docs/log.md"], "events"), re.MULTILINE))
    names = ((f"`{each.key}`", each) for each in Event)
    rows = ((name, each.level, each.message, said.get(name, TO_WRITE)) for name, each in names)
    return table("event | level | message | when it is logged, and its fields", rows)


GENERATED = [
    ("docs/configuration.md", "keys", key_table),
    ("docs/observability.md", "metrics", metric_table),
    ("docs/log.md", "events", event_table),
]


def between(text: str, marker: str) -> str:
    return text.partition(f"<!-- {marker} -->")[2].partition(f"<!-- /{marker} -->")[0]


@pytest.mark.parametrize(("page", "marker", "generate"), GENERATED, ids=[marker for _, marker, _ in GENERATED])
def test_a_generated_table_is_up_to_date(page: str, marker: str, generate: Callable[[], str]) -> None:
    """Run `python -m tests.unit.test_docs` after a change of the declarations."""
    assert generate() == between(TEXTS[page], marker).strip()


def test_the_log_page_says_when_each_event_is_logged() -> None:
    """A new event has a row that a person must complete."""
    assert TO_WRITE not in TEXTS["docs/log.md"]


USES = re.compile(r"(?<![\w/.-])(?:\.venv/bin/)?winnow (?!winnow )([a-z]+)(?![\w/.:-])([^\n#|;&>]*)")


def uses(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of Winnow in the code of a page, with what follows it."""
    code = [block for language in ("", "console", "sh", "bash", "text") for block in fenced(text, language)]
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    for each in (*code, *re.findall(r"`([^`\n]+)`", prose)):
        yield from USES.findall(each.replace("\\\n", " "))


def resolve(name: str, arguments: str) -> tuple[str, click.Command]:
    """Return the command and, of a group, the subcommand that is used."""
    command = main.commands[name]
    subcommand = re.match(r" ([a-z]+)", arguments)
    if isinstance(command, click.Group) and subcommand:
        return f"{name} {subcommand[1]}", command.commands[subcommand[1]]
    return name, command


@in_each_page
def test_every_command_and_option_in_a_page_exists(page: str) -> None:
    """A reader can type what a page shows."""
    for name, arguments in uses(TEXTS[page]):
        _, command = resolve(name, arguments)
        known = {flag for parameter in command.params for flag in parameter.opts}
        assert set() == set(re.findall(r"(?<= )--?[a-z][a-z-]*", arguments)) - known, f"winnow {name}{arguments}"


def test_every_command_is_in_a_page() -> None:
    """Each command and subcommand is shown somewhere."""
    shown = {resolve(*each)[0] for page in PAGES for each in uses(TEXTS[page])}

    assert set() == LEAVES.keys() - {f"winnow {each}" for each in shown}


def configurations(text: str) -> Iterator[dict[str, Any]]:
    """Yield each block of YAML whose keys are those of the configuration."""
    for block in fenced(text, "yaml"):
        for content in yaml.safe_load_all(block):
            if isinstance(content, dict) and set(content) <= {*keys_of(Config), "sink.kafka"}:
                yield content


@in_each_page
def test_every_configuration_in_a_page_loads(page: str, tmp_path: Path) -> None:
    """A block that shows some keys is completed by those of the README."""
    (example,) = configurations(TEXTS["README.md"])
    for content in configurations(TEXTS[page]):
        whole = example | content
        for section in ("sink", "dead.letters", "kafka"):
            whole[section] = example[section] | whole[section]
        file = tmp_path / "winnow.yaml"
        file.write_text(yaml.safe_dump(whole))
        load(file, (), {})


def test_the_commands_of_the_configuration_page_run(tmp_path: Path) -> None:
    """They print what the page shows."""
    page = TEXTS["docs/configuration.md"]
    (tmp_path / "winnow.yaml").write_text(next(fenced(page, "yaml")))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for block in fenced(page, "console"):
        typed, shown = zip(*commands(f"```console\n{block}```"), strict=True)
        done = subprocess.run(
            ["bash", "-ec", "\n".join(typed)],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            check=True,
        )
        assert "".join(shown) in done.stdout.decode()
    assert (tmp_path / "winnow.schema.json").stat().st_size


def test_the_commands_of_the_parser_pages_run(tmp_path: Path) -> None:
    """Each parser that a page configures cleanses the file that the page shows; the own one is installed first."""
    page = TEXTS["docs/own-parser.md"]
    parser, contract = (block for block in fenced(page, "python") if "JsonLines" in block)
    package, metadata = tmp_path / "acme_parsers", tmp_path / "acme_parsers-1.0.0.dist-info"
    package.mkdir()
    (package / "json_lines.py").write_text(parser)
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-parsers\nVersion: 1.0.0\n")
    (entry,) = (block for block in fenced(page, "toml") if "winnow.parsers" in block)
    groups = tomllib.loads(entry)["project"]["entry-points"]["winnow.parsers"]
    lines = [f"{name} = {place}" for name, place in groups.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[winnow.parsers]", *lines]))
    (tmp_path / "test_contract.py").write_text(contract)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}

    pages = [page, TEXTS["docs/parsers.md"]]
    shown = [(each, *file) for each in pages for file in parsed_files(each)]
    assert 4 == len(shown)
    for each, file, content, arguments, printed in shown:
        before = each[: each.index(content)]
        (tmp_path / "winnow.yaml").write_text(list(fenced(before, "yaml"))[-1])
        (tmp_path / file).write_text(content + "\n")
        done = subprocess.run(
            [sys.executable, "-m", "app.cli", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert sorted(printed.splitlines()) == sorted((done.stdout + done.stderr).splitlines())
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_contract.py"], cwd=tmp_path, env=environment, check=True
    )


def parsed_files(page: str) -> Iterator[tuple[str, str, list[str], str]]:
    """Yield each file that a page shows and parses: its name, its lines, the arguments, and what is printed."""
    for block in fenced(page, "console"):
        (shown, content), *rest = commands(f"```console\n{block}```")
        if shown.startswith("cat "):
            ((command, printed),) = rest
            yield shown.split()[1], content, command.split()[1:], printed


def test_every_parser_is_in_its_page() -> None:
    """The page lists each parser by its name in a configuration."""
    assert [] == [name for name in registry.names() if f"`{name}`" not in TEXTS["docs/parsers.md"]]


def test_every_reason_is_in_a_page() -> None:
    """The page lists the reasons in the order in which they apply."""
    listed = re.search(r"The reasons are\s(.*?)\.", TEXTS["docs/integrations.md"], re.DOTALL)
    assert listed
    reasons = [*IdcAccessLog().reasons, TOO_LARGE, ENVELOPE, PARSER_ERROR, REFUSED]

    assert reasons == re.findall(r"`(\w+)`", listed[1])


def test_every_make_target_is_in_a_page_and_exists() -> None:
    """A page names no target that the Makefile has not, and docs/developing.md names them all."""
    targets = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE)) - {"help"}
    named = {page: set(re.findall(r"(?:`|^\$ |^)make ([a-z-]+)", text, re.MULTILINE)) for page, text in TEXTS.items()}

    assert {} == {page: names - targets for page, names in named.items() if names - targets}
    assert set() == targets - named["docs/developing.md"]


THEIRS = {"Authentication failed", "Unsupported SASL mechanism", "SASL OAUTHBEARER token"}
"""Messages of librdkafka and the brokers."""


def quoted(page: str) -> Iterator[str]:
    """Yield each message that a table of causes or messages quotes in its first column."""
    for rows in re.findall(r"^\| the (?:cause|message) contains.*\n\|[ -|]*\n((?:\|.*\n)+)", TEXTS[page], re.MULTILINE):
        for row in rows.splitlines():
            yield from re.findall(r"`([^`]+)`", row.split(" | ")[0])


@cache
def said() -> str:
    """Return every string of the product, a line each; `…` stands for what is filled in."""
    trees = (ast.parse(file.read_text()) for file in (ROOT / "app").rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return "\n".join(" ".join(text.split()) for text in map(_text, nodes) if text)


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or "…" for part in parts)
    return ""


@pytest.mark.parametrize("page", ["docs/runbook.md", "docs/security.md"])
def test_the_product_says_what_a_page_quotes(page: str) -> None:
    """A reader looks a message up by its words."""
    messages = set(quoted(page)) - THEIRS

    assert messages
    assert [] == [each for each in messages if each not in said()]


def dead_ends(page: str, text: str) -> Iterator[str]:
    """Yield each link that leads nowhere."""
    for target, anchor in links(text):
        file = ROOT / resolved(page, target)
        if not file.exists() or (anchor and anchor[1:] not in anchors(file.read_text() if target else text)):
            yield target + anchor


@pytest.mark.parametrize("page", [*TEXTS, "tests/bench/RESULTS.md", "tests/chaos/RESULTS.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    """Each relative link and image has its file, and each anchor its heading."""
    assert ["no.md", "#no"] == list(dead_ends("README.md", "# Yes\n[a](no.md) [b](#no) [c](#yes) `[d](no.md)`"))
    assert [] == list(dead_ends(page, (ROOT / page).read_text()))


def test_every_page_can_be_reached() -> None:
    """By links from docs/index.md."""
    reached = ["docs/index.md"]
    for page in reached:
        targets = dict.fromkeys(resolved(page, target) for target, _ in links(TEXTS[page]))
        reached += [target for target in targets if target in PAGES and target not in reached]

    assert set() == set(PAGES) - set(reached)


def test_no_page_goes_back_by_a_rollback() -> None:
    """Helm applies the old manifests as they were; their generation stands by while the newer one works."""
    assert [page for page, text in TEXTS.items() if "helm rollback " in text] == []


@pytest.mark.parametrize("page", LIMITS)
def test_a_page_is_short(page: str) -> None:
    """A page that grows is split by what its readers want."""
    assert (ROOT / page).stat().st_size <= LIMITS[page]


@pytest.mark.parametrize("page", EXPLAIN)
def test_every_test_and_control_arm_in_a_page_exists(page: str) -> None:
    """A reader finds each test that is named, and can run each control arm."""
    arms = set(re.findall(r"control arm `([\w-]+)`", TEXTS[page]))

    assert set() == set(re.findall(r"`(test_\w+)`", TEXTS[page])) - defined()
    assert set() == arms - set(CONTROL_PLANS)


@cache
def defined() -> frozenset[str]:
    """Return the name of each test."""
    sources = (file for folder in ("app", "parsers", "tests") for file in (ROOT / folder).rglob("*.py"))
    return frozenset(name for file in sources for name in re.findall(r"def (test_\w+)\(", file.read_text()))


@pytest.mark.parametrize("page", EXPLAIN)
def test_every_file_in_a_page_exists(page: str) -> None:
    """A reader finds each file, folder and module that is named."""
    assert list(missing("no `app/such.py`")) == ["app/such.py"]
    assert [] == list(missing(TEXTS[page]))


def missing(text: str) -> Iterator[str]:
    """Return the paths in a text that do not exist, not even relative to the first path of their line."""
    for line in text.splitlines():
        folders = [ROOT]
        for path in paths(line):
            if not path.startswith("dist/") and not any((folder / path).exists() for folder in folders):  # made later
                yield path
            if len(folders) == 1:
                folders += [ROOT / path, (ROOT / path).parent]


def paths(line: str) -> Iterator[str]:
    """Return the paths in backticks and links; `python -m a.b` is the path of a module."""
    for word in " ".join(re.findall(r"`([^`]+)`", line)).split():
        if re.fullmatch(r"(?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|yaml)", word):
            yield word
        elif re.fullmatch(r"tests(?:\.\w+)+", word):
            module = word.replace(".", "/")
            yield module if (ROOT / module).is_dir() else f"{module}.py"


if __name__ == "__main__":
    for page, marker, generate in GENERATED:
        text = TEXTS[page] = TEXTS[page].replace(
            f"<!-- {marker} -->{between(TEXTS[page], marker)}<!--", f"<!-- {marker} -->\n{generate()}\n<!--"
        )
        (ROOT / page).write_text(text)
