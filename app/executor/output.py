"""Makes the sink's records of cleansed lines: what each of them carries besides the line."""

from __future__ import annotations

from app.model import TaskConfig
from app.records import Chunk, Lines
from parsers.contract import Parsed
from parsers.flume import envelope


class Output:
    """
    Gives each cleansed line the key and the timestamp of its source record, and Flume's headers that are to be kept.

    Args:
        config: what the user wants to be kept.
    """

    def __init__(self, config: TaskConfig) -> None:
        self._headers = config.flume_headers

    def lines(self, chunk: Chunk, parsed: Parsed) -> Lines:
        """Return the lines of a parsed chunk, as they go to the sink."""
        columns = envelope.headers(chunk.values, self._headers) if self._headers else ()
        headers = tuple(zip(self._headers, columns, strict=True))
        return Lines(parsed.values, parsed.rows, chunk.keys, chunk.timestamps, headers)
