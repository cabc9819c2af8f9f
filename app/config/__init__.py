"""
The configuration: declared once, read once at the edge, and passed on as one frozen value.

`--set key=value` wins over the environment (`WINNOW_SOURCE__TOPICS`), the environment over the file, and the file over
the defaults, which an image may change (`WINNOW_DEFAULT__HTTP__ADDRESS`). Keys are written with dots; sections nest.
`kafka` and `spark` take names verbatim (and values, from the environment and `--set`), `parser` its parser's options,
`offsets.store` and each of `offsets.mirrors` its store's.
"""

from app.config.model import Config, Filter, FromDuration, FromTimestamp, ParserChoice, Sample
from app.config.reading import Loaded, clear_environment, load, read, read_parser
from app.config.rules import Rule, undecided
from app.config.secrets import exposed_secrets, secret_texts
from app.config.shown import commented, options, schema, shown, values
from app.config.sources import FILE, FILE_VARIABLE, Tree

__all__ = [
    "FILE",
    "FILE_VARIABLE",
    "Config",
    "Filter",
    "FromDuration",
    "FromTimestamp",
    "Loaded",
    "ParserChoice",
    "Rule",
    "Sample",
    "Tree",
    "clear_environment",
    "commented",
    "exposed_secrets",
    "load",
    "options",
    "read",
    "read_parser",
    "schema",
    "secret_texts",
    "shown",
    "undecided",
    "values",
]
