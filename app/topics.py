"""The names of the topics that Winnow creates, which a topic pattern never matches. Any process."""

from __future__ import annotations

from dataclasses import dataclass

PLACEHOLDER = "{topic}.winnow-offsets"
"""The default name of a source topic's placeholder on the sink's cluster."""
LEDGER, PARKING = "{}.replayed", "{}.parked"
"""The topics named after the dead-letter topic: what replays have done, and what failed too often."""


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """The topics that Winnow creates; `placeholder` is the template of placeholders in use, or empty."""

    dead_letters: str = ""
    placeholder: str = ""

    def __contains__(self, topic: object) -> bool:
        name = str(topic)
        beside = (LEDGER.format(self.dead_letters), PARKING.format(self.dead_letters))
        return name in beside or any(_is_made_of(template, name) for template in (PLACEHOLDER, self.placeholder))


def _is_made_of(template: str, name: str) -> bool:
    """Return whether a name fits the template; a placeholder named like its source topic cannot be told from it."""
    before, _, after = template.partition("{topic}")
    around = len(before) + len(after)
    return 0 < around < len(name) and name.startswith(before) and name.endswith(after)
