"""Whatever stands beside a committed offset, it is read without an error; what Winnow reads, it can write and read again."""

from __future__ import annotations

from app.offsets.metadata import OffsetMetadata


def check_metadata(text: str) -> OffsetMetadata:
    """Read it, write what was read, and fail if reading that tells anything else; return what was read."""
    read = OffsetMetadata.parse(text)
    again = OffsetMetadata.parse(str(read)) if read.is_ours else OffsetMetadata()
    assert read == again, (text, read, again)
    return read
