"""Topics whose partitions are on chosen nodes."""

from __future__ import annotations

FRAGILE_NODE = 3
"""The node that goes down."""
COMPACTED = {"cleanup.policy": "compact"}
