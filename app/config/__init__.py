"""
What a user can set: declared once, read once at the edge, passed on as one frozen value.

`--set key=value` wins over the environment (`WINNOW_SOURCE__TOPICS`), the environment over the file, and the file over
the default. Keys are written as in the file, with dots; sections nest. `kafka` and `spark` take their owners' names
verbatim (from the environment and `--set` their values, too), `parser` its parser's options, `offsets.store` its
store's.
"""

from app.config.model import Config, DeadLetterTopic, FromDuration, FromTimestamp, ParserChoice, Source, StoreChoice
from app.config.reading import Loaded, load, read
from app.config.shown import described, masked, shown
from app.config.sources import ENV_PREFIX

__all__ = [
    "ENV_PREFIX",
    "Config",
    "DeadLetterTopic",
    "FromDuration",
    "FromTimestamp",
    "Loaded",
    "ParserChoice",
    "Source",
    "StoreChoice",
    "described",
    "load",
    "masked",
    "read",
    "shown",
]
