"""What a store finds in the place of an offset."""

from __future__ import annotations

import pytest

from app.headers import LARGEST
from app.model import CommittedOffset
from app.offsets.failures import stored_offset, tied


@pytest.mark.parametrize("offset", [0, 7, LARGEST])
def test_an_offset_is_read(offset: int) -> None:
    """Kafka's offsets have 63 bits."""
    assert CommittedOffset(offset, "m") == stored_offset(str(offset), "m", "key a")
    assert CommittedOffset(offset, "m") == stored_offset(f"{offset:0>5000}", "m", "key a")


@pytest.mark.parametrize("text", ["", "-1", "4x", "٤", "²", str(LARGEST + 1), "9" * 5_000])
def test_anything_else_is_corrupt(text: str) -> None:
    """The message names the place and what it holds. Python reads other scripts' digits, but not thousands of any."""
    found = stored_offset(text, "m", "key a")

    assert f"key a holds {text[:40]!r}, which is not an offset" == found.corrupt


@pytest.mark.parametrize("metadata", ["", "winnow/2 topic=a in=3", "another at=8 tool"])
def test_metadata_belongs_to_its_offset(metadata: str) -> None:
    """If another tool sets only the number, what the metadata says of the old one, such as `read`, must not count."""
    assert CommittedOffset(7) == stored_offset("7", tied(8, metadata), "key a")


@pytest.mark.parametrize("metadata", ["", "winnow/2 topic=a in=3"])
def test_metadata_is_found_without_its_tie(metadata: str) -> None:
    """0.2.0 has tied it to no offset."""
    for stored in (metadata, tied(7, metadata)):
        assert CommittedOffset(7, metadata) == stored_offset("007", stored, "key a")
