"""The image of docker/Dockerfile, built by a container engine if one is available, otherwise by Debian's own tools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.containers.contract import Image
from tests.containers.debian import image_of_debian, why_not_debian
from tests.containers.engine import image_of_engine, why_no_engine


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """Build the image and start a Kafka for it. Remove both at the end."""
    if no_engine := why_no_engine():
        if not_debian := why_not_debian():
            pytest.skip(f"{no_engine}; {not_debian}")
        with image_of_debian() as built_here:
            yield built_here
    else:
        with image_of_engine() as built_there:
            yield built_there
