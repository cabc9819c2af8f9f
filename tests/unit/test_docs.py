"""README says what is true: every key, command, parser and reason in it exists, and the other way round."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from app.cli import main
from app.config import described, load
from app.executor.parse import PARSER_ERROR, TOO_LARGE
from parsers import registry
from parsers.flume.envelope import REASON as ENVELOPE
from parsers.idc_access_log import IdcAccessLog

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def between(marker: str) -> str:
    return README.partition(f"<!-- {marker} -->")[2].partition(f"<!-- /{marker} -->")[0]


def key_table() -> str:
    rows = [f"| `{key}` | {f'`{default}`' if default else ''} | {meaning} |" for key, default, meaning in described()]
    return "\n".join(["| key | default | meaning |", "| --- | --- | --- |", *rows])


def test_every_configuration_key_is_in_the_readme_and_the_other_way_round() -> None:
    """The table is made of the declarations: run `python -m tests.unit.test_docs` after a change."""
    assert key_table() == between("keys").strip()


def test_every_command_is_in_the_readme_and_the_other_way_round() -> None:
    """A command that nobody can find is as bad as one that does not exist."""
    assert set(main.commands) == set(re.findall(r"\$ winnow (\w+)", README))


def test_every_option_in_the_readme_exists() -> None:
    """The examples can be typed."""
    examples = re.findall(r"\$ winnow (\w+)([^#\n]*)", README)
    for command, arguments in examples:
        known = {flag for parameter in main.commands[command].params for flag in parameter.opts}
        assert set(re.findall(r"(?<= )--?[a-z][a-z-]*", arguments)) <= known


def test_the_example_configuration_is_valid(tmp_path: Path) -> None:
    """What a reader copies works."""
    (example,) = re.findall(r"```yaml\n(group\.id.*?)```", README, re.DOTALL)
    file = tmp_path / "winnow.yaml"
    file.write_text(example)

    assert yaml.safe_load(example)["group.id"] == load(file, (), {}).group_id


def test_every_parser_is_in_the_readme() -> None:
    """By the name that a configuration gives it."""
    assert all(f"| `{name}` |" in README for name in registry.names())


def test_every_reason_is_in_the_readme() -> None:
    """In the order in which they apply."""
    told = re.search(r"The reasons are\s(.*?)\.", README, re.DOTALL)
    assert told
    reasons = [*IdcAccessLog().reasons, TOO_LARGE, ENVELOPE, PARSER_ERROR]

    assert reasons == re.findall(r"`(\w+)`", told[1])


def test_every_make_target_in_the_readme_exists() -> None:
    """And the Makefile lists each with a word of help."""
    targets = set(re.findall(r"^(\w+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"`make (\w+)`", README)) <= targets
    assert {"setup", "demo", "test", "bench", "lint"} <= targets


if __name__ == "__main__":
    (ROOT / "README.md").write_text(README.replace(f"-->{between('keys')}<!--", f"-->\n{key_table()}\n<!--"))
