"""The lines of a simulated source, its group and topics, and a parser that costs next to nothing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from parsers.contract import Parsed

GROUP, RAW, CLEAN, DEAD = "g", "raw", "clean", "dead"


def line(partition: int, number: int, *, good: bool = True) -> bytes:
    """Return a raw line that tells which record it is."""
    return b"%s%d:%d" % (b"" if good else b"!", partition, number)


class TinyParser:
    """Prefixes lines with `ok`, and rejects those that begin with `!`."""

    def parse(self, values: pa.BinaryArray) -> Parsed:
        texts = values.to_pylist()
        bad = [row for row, text in enumerate(texts) if text is None or text.startswith(b"!")]
        good = [row for row, text in enumerate(texts) if text is not None and not text.startswith(b"!")]
        return Parsed(
            pa.array([b"ok " + texts[row] for row in good], pa.binary()),
            np.array(good, np.int32),
            np.array(bad, np.int32),
            pa.array(["bad"] * len(bad), pa.string()),
            pa.array(["it begins with !"] * len(bad), pa.string()),
        )


class LenientParser:
    """Accepts every line, as a mended parser does when dead letters are replayed."""

    def parse(self, values: pa.BinaryArray) -> Parsed:
        texts = values.to_pylist()
        none = pa.array([], pa.string())
        lines = pa.array([b"ok " + (text or b"") for text in texts], pa.binary())
        return Parsed(lines, np.arange(len(texts), dtype=np.int32), np.zeros(0, np.int32), none, none)
