"""
Cleanses lines of any format: fields are found in a line, checked, and written to an output.

A line is rejected by the first of these rules that it breaks:

1. `empty`: the value is null, or only a line ending. One CR, LF or CRLF at the end is not part of the line.
2. The reasons of the format: the line does not have it.
3. A field's name: that field fails its check. Checks apply in the order of the option `checks`. Blanks and tabs around
   a checked field are removed first, unless the field is escaped.
4. `illegal_character`: an unescaped field in the output contains a character that would break it.

Three kinds of characters would break a text: control characters (0x00-0x1F, 0x7F), bytes that are not part of valid
UTF-8, and the output separator, which is the character between two columns of the output. In an escaped field each
such byte becomes % and two upper-case hexadecimal digits. All other bytes stay unchanged, including %. JSON has an
escape for every character, so there only bytes that are not UTF-8 are illegal.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

from parsers.compiled.buffers import as_binary
from parsers.compiled.engine import Engine
from parsers.contract import Parsed, Parser
from parsers.fields.formats import Format
from parsers.fields.layout import Layout, build
from parsers.fields.located import output_fields
from parsers.fields.plain import Plain


class FieldParser:
    """
    Cleanses lines of one format.

    Args:
        output: the cleansed line, with `{name}` for each field, such as `{host}|{port}`; as JSON, a list of fields.
        output_format: `text`, or `json` for an object with a member for each field of `output`.
        output_separator: the ASCII character between two columns of a text.
        checks: the checks of fields.
        escape: the fields whose illegal characters are percent-encoded. In any other field they reject the line.
        engine: `compiled`, `plain`, or `auto` for compiled if Numba can be imported and plain if not.

    Raises:
        ParserOptionError: at least one option is wrong. The message lists every problem.
    """

    def __init_subclass__(cls) -> None:
        """Show the options that all formats share in the signature, where `parsers.plugins` looks for them."""
        own = [*inspect.signature(cls.__init__).parameters.values()][1:]
        named = [each for each in own if each.kind is not each.VAR_KEYWORD]
        shared = [each for each in inspect.signature(build).parameters.values() if each.kind is each.KEYWORD_ONLY]
        cls.__signature__ = inspect.Signature([*named, *(shared if len(named) < len(own) else ())])

    __signature__: ClassVar[inspect.Signature]

    def __init__(self, layout: Layout, engine: Engine, form: Format) -> None:
        self._layout = layout
        self.engine = engine
        """The engine in use: never `auto`."""
        self.reasons = layout.reasons
        """Every reason code of this parser, in the order in which the rules apply."""
        if engine is Engine.PLAIN:
            self._worker: Parser = Plain(layout, form)
        else:
            from parsers.fields.compiled import Compiled  # needs Numba, which may be missing

            self._worker = Compiled(layout, form)

    @property
    def output_fields(self) -> Mapping[str, str]:
        """
        The fields of the output that can be located; see `parsers.contract.HasFields`.

        In a text those are the fields with a column of their own, and the fields of a column in which all are checked
        as `datetime`, `ip` or `port` and separated by more than digits.
        """
        return output_fields(self._layout)

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """Cleanse one batch. Text, large and chunked arrays are converted."""
        return self._worker.parse(as_binary(lines))
