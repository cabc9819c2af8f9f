"""
What Winnow knows about Spark's property names, without Spark.

The configuration uses it, and must load where pyspark is not installed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

OWNED: Mapping[str, str] = {
    "spark.speculation": "a speculative attempt would fence the task that it duplicates",
}
"""The properties that must stay false, each with the reason that a user is given."""

# Spark's own default of spark.redaction.regex.
_SECRETS = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Return whether the value of a property must not be shown; a path to a secret may be."""
    return bool(_SECRETS.search(name)) and not name.endswith(".file")
