"""Any metadata of a committed offset can be read, and what Winnow reads it can write and read again."""

from __future__ import annotations

from app.offsets.metadata import OffsetMetadata


def check_metadata(text: str) -> OffsetMetadata:
    """Read metadata, write the result, and fail if reading that gives another result. Return the first result."""
    read = OffsetMetadata.parse(text)
    again = OffsetMetadata.parse(str(read)) if read.is_ours else OffsetMetadata()
    assert read == again, (text, read, again)
    return read
