"""The parser that the page on parsers writes step by step keeps the contract, and does what its examples show."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from parsers.contract import Parser
from parsers.fields.located import cut, pattern_of
from parsers.testing import ParserContract, batch, outcomes

PAGE = (Path(__file__).parents[3] / "docs" / "own-parser.md").read_text()


def documented() -> Callable[..., Parser]:
    """Return the class on the page."""
    (program,) = re.findall(r'```python\n("""Turns JSON lines.*?)```', PAGE, re.DOTALL)
    names: dict[str, Callable[..., Parser]] = {}
    exec(program, names)
    return names["JsonLines"]


class TestOwnParser(ParserContract):
    """The contract, with the good line of the page."""

    good_lines = (b'{"host": "web-1", "path": "/a"}',)

    def make_parser(self) -> Parser:
        """Return the parser of the page, with the options of its configuration."""
        return documented()(fields=["host", "path"])

    def test_the_samples_of_the_page(self) -> None:
        """The configuration on the page has samples that come true."""
        (example,) = re.findall(r"```yaml\n(group\.id: web-logs.*?)```", PAGE, re.DOTALL)
        options = yaml.safe_load(example)["parser"]
        samples = options.pop("samples")
        assert "json-lines" == options.pop("name")

        found = outcomes(documented()(**options).parse(batch([each["line"].encode() for each in samples])), 2)

        assert [samples[0]["output"].encode(), samples[1]["reason"]] == [found[0], found[1][0]]

    @pytest.mark.parametrize(("field", "value"), [("host", b"web-1"), ("path", b"/a")])
    def test_its_fields_can_be_keys(self, field: str, value: bytes) -> None:
        """Each pattern finds its field in a cleansed line."""
        parser = self.make_parser()
        parsed = parser.parse(batch(self.good_lines))

        assert [value] == cut(parsed.values, pattern_of(parser, field)).to_pylist()
