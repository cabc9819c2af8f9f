"""The names of the topics that Winnow creates beside those of its user: nobody means them by a pattern. Any process."""

from __future__ import annotations

from dataclasses import dataclass

PLACEHOLDER = "{topic}.winnow-offsets"
"""What stands for a source topic on the cluster of the sink, unless the configuration says otherwise."""
LEDGER, PARKING = "{}.replayed", "{}.parked"
"""The topics beside the dead letters: what replays have done, and what failed too often."""


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """
    The topics that Winnow creates.

    Args:
        dead_letters: the dead-letter topic.
        placeholder: the template of the placeholders in use; empty where there are none.
    """

    dead_letters: str = ""
    placeholder: str = ""

    def __contains__(self, topic: object) -> bool:
        name = str(topic)
        beside = (LEDGER.format(self.dead_letters), PARKING.format(self.dead_letters))
        return name in beside or any(_is_made_of(template, name) for template in (PLACEHOLDER, self.placeholder))


def _is_made_of(template: str, name: str) -> bool:
    """Return whether a topic is a placeholder; one that bears the name of its source topic is not told from that."""
    before, _, after = template.partition("{topic}")
    around = len(before) + len(after)
    return 0 < around < len(name) and name.startswith(before) and name.endswith(after)
