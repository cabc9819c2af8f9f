"""README and DESIGN match the code: every name in them exists, and README lists every key, command, parser and reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import yaml

from app.cli import main
from app.config import described, load
from app.executor.parse import PARSER_ERROR, REFUSED, TOO_LARGE
from app.status import metrics
from parsers import registry
from parsers.flume.envelope import REASON as ENVELOPE
from parsers.idc_access_log import IdcAccessLog
from tests.chaos.controls import CONTROL_PLANS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DESIGN = (ROOT / "DESIGN.md").read_text()


def between(marker: str) -> str:
    return README.partition(f"<!-- {marker} -->")[2].partition(f"<!-- /{marker} -->")[0]


def key_table() -> str:
    rows = [f"| `{key}` | {f'`{default}`' if default else ''} | {meaning} |" for key, default, meaning in described()]
    return "\n".join(["| key | default | meaning |", "| --- | --- | --- |", *rows])


def test_the_readme_lists_exactly_the_configuration_keys() -> None:
    """The table is generated from the declarations: run `python -m tests.unit.test_docs` after a change."""
    assert key_table() == between("keys").strip()


def metric_table() -> str:
    rows = [f"| `{name}` | {labels} | {meaning} |" for name, labels, meaning in metrics.described()]
    return "\n".join(["| metric | labels | meaning |", "| --- | --- | --- |", *rows])


def test_the_readme_lists_exactly_the_metrics() -> None:
    """The table is generated, like that of the keys."""
    assert metric_table() == between("metrics").strip()


def test_the_readme_shows_exactly_the_commands() -> None:
    """README shows every command, and no other."""
    assert set(main.commands) == set(re.findall(r"\$ winnow (\w+)", README))


def test_every_option_in_the_readme_exists() -> None:
    """The examples of README use only options that exist."""
    examples = re.findall(r"\$ winnow (\w+)([^#\n]*)", README)
    for name, arguments in examples:
        command = main.commands[name]
        if isinstance(command, click.Group):
            command = command.commands[arguments.split()[0]]
        known = {flag for parameter in command.params for flag in parameter.opts}
        assert set(re.findall(r"(?<= )--?[a-z][a-z-]*", arguments)) <= known


def test_the_example_configuration_is_valid(tmp_path: Path) -> None:
    """The configuration in README can be loaded."""
    (example,) = re.findall(r"```yaml\n(group\.id.*?)```", README, re.DOTALL)
    file = tmp_path / "winnow.yaml"
    file.write_text(example)

    assert yaml.safe_load(example)["group.id"] == load(file, (), {}).group_id


def test_every_parser_is_in_the_readme() -> None:
    """README lists each parser by its name in a configuration."""
    assert all(f"| `{name}` |" in README for name in registry.names())


def test_every_reason_is_in_the_readme() -> None:
    """README lists the reasons in the order in which they apply."""
    listed = re.search(r"The reasons are\s(.*?)\.", README, re.DOTALL)
    assert listed
    reasons = [*IdcAccessLog().reasons, TOO_LARGE, ENVELOPE, PARSER_ERROR, REFUSED]

    assert reasons == re.findall(r"`(\w+)`", listed[1])


def test_every_make_target_in_the_readme_exists() -> None:
    """Each target has a line of help in the Makefile."""
    targets = set(re.findall(r"^(\w+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"`make (\w+)`", README)) <= targets
    assert {"setup", "demo", "test", "bench", "lint"} <= targets


def test_every_test_in_the_design_exists() -> None:
    """A reader of DESIGN finds each test that it names."""
    sources = [file for folder in ("app", "parsers", "tests") for file in (ROOT / folder).rglob("*.py")]
    defined = {name for file in sources for name in re.findall(r"def (test_\w+)\(", file.read_text())}
    named = set(re.findall(r"`(test_\w+)`", DESIGN))

    assert named
    assert set() == named - defined


def test_every_control_arm_in_the_design_exists() -> None:
    """A reader of DESIGN can run each control arm that it names."""
    named = set(re.findall(r"control arm `([\w-]+)`", DESIGN))

    assert named
    assert set() == named - set(CONTROL_PLANS)


def test_every_file_in_the_design_exists() -> None:
    """A reader of DESIGN finds each file, folder and module that it names."""
    assert list(missing("no `app/such.py`")) == ["app/such.py"]
    assert [] == list(missing(DESIGN))


def missing(text: str) -> Iterator[str]:
    """Return the paths in a text that do not exist, not even relative to the first path of their line."""
    for line in text.splitlines():
        folders = [ROOT]
        for path in paths(line):
            if not any((folder / path).exists() for folder in folders):
                yield path
            if len(folders) == 1:
                folders += [ROOT / path, (ROOT / path).parent]


def paths(line: str) -> Iterator[str]:
    """Return the paths in backticks and links; `python -m a.b` is the path of a module."""
    spans = re.findall(r"`([^`]+)`|]\(([^)#]+)\)", line)
    for word in " ".join(map("".join, spans)).split():
        if re.fullmatch(r"(?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|yaml)", word):
            yield word
        elif re.fullmatch(r"tests(?:\.\w+)+", word):
            module = word.replace(".", "/")
            yield module if (ROOT / module).is_dir() else f"{module}.py"


if __name__ == "__main__":
    written = README
    for marker, table in (("keys", key_table()), ("metrics", metric_table())):
        written = written.replace(f"<!-- {marker} -->{between(marker)}<!--", f"<!-- {marker} -->\n{table}\n<!--")
    (ROOT / "README.md").write_text(written)
