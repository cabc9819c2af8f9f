"""The stored offsets and their metadata, for `winnow offsets show`. Changes nothing."""

from __future__ import annotations

from typing import Any

from app.model import NOBODY
from app.offsets.metadata import OffsetMetadata
from app.operate.lag import PartitionLag


def metadata_of(at: PartitionLag) -> OffsetMetadata:
    """Return the metadata of an offset; it is empty if an operator set the offset."""
    return OffsetMetadata.parse(at.committed.metadata if at.committed else "")


def as_json(at: PartitionLag) -> dict[str, Any]:
    """Return a stored offset for `--json`."""
    metadata = metadata_of(at)
    owner = metadata.owner
    return {
        **at.partition.as_json(),
        "current_offset": at.offset,
        "since": metadata.since if metadata.is_ours else None,
        "in": metadata.counts.records,
        "out": metadata.counts.out,
        "dead_letters": dict(metadata.counts.dead),
        "committed_by": None if owner == NOBODY else owner._asdict(),
        "metadata": at.committed.metadata if at.committed else None,
        "problem": at.problem or None,
    }
