"""Wall clocks of the driver and of the workers that the harness can set, each by itself."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from tests.support.compiler import compiled

SOURCE = Path(__file__).with_name("clock.c")
DRIVER, WORKERS = "driver", "workers"


class Clocks:
    """The clocks, each a file with the nanoseconds by which it differs from the machine's."""

    def __init__(self, folder: Path) -> None:
        """
        Set all clocks right.

        Raises:
            NotUsable: there is no C compiler.
        """
        self._library = compiled(SOURCE, "-O2", "-shared", "-fPIC")
        self._files = {who: folder / f"{who}.clock" for who in (DRIVER, WORKERS)}
        for who in self._files:
            self.set(who, 0)

    def set(self, who: str, seconds: int) -> None:
        """Set a clock to this much after the machine's."""
        difference = struct.pack("q", seconds * 10**9)
        file = self._files[who]
        with file.open("r+b" if file.exists() else "wb") as written:  # it is mapped: it must not be replaced
            written.write(difference)

    def environment(self, who: str) -> Mapping[str, str]:
        """Return the environment of the processes that go by a clock."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_FILE": str(self._files[who])}
