"""
Finds a parser by its name in the configuration.

Other packages add parsers with an entry point in the group `winnow.parsers`. Its name is what a user writes as
`parser.name`; its value is a class or function that takes the options as keyword arguments and returns the parser:

    [project.entry-points."winnow.parsers"]
    nginx-combined = "acme.parsers:NginxCombined"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from parsers.contract import Parser
from parsers.errors import ParserOptionError, UnknownParser
from parsers.plugins import Plugins

PARSERS = Plugins(
    kind="parser",
    method="parse(lines)",
    group="winnow.parsers",
    built_in={
        "csv": "parsers.csv_lines:CsvLines",
        "delimited": "parsers.delimited:Delimited",
        "idc-access-log": "parsers.idc_access_log:IdcAccessLog",
        "json": "parsers.json_lines:JsonLines",
        "logfmt": "parsers.logfmt:Logfmt",
        "regex": "parsers.regex:Regex",
    },
    protocol=Parser,
    unknown=UnknownParser,
    wrong_option=ParserOptionError,
)
names, describe, problems = PARSERS.names, PARSERS.describe, PARSERS.problems


def load(name: str, options: Mapping[str, object]) -> Parser:
    """
    Build the parser of that name, which is built-in or an entry point.

    `options` are the parser's options as the user writes them; `.` and `-` in a key stand for `_`.

    Raises:
        UnknownParser: there is no parser of that name, or more than one, or it cannot be imported or has no method
            `parse`.
        ParserOptionError: an option is missing, unknown or given twice, or the parser refuses its value.
    """
    return cast("Parser", PARSERS.load(name, options))
