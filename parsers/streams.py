"""Cleanses a stream of lines with a parser, as `winnow parse` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import IO

import pyarrow as pa

from parsers.contract import Parse, Reject

BATCH_LINES = 10_000


def outcomes(parse: Parse, source: IO[bytes]) -> Iterator[bytes | Reject]:
    """Yield the result for each line, in order: its cleansed form, or its reject, whose row counts all lines."""
    before = 0
    while lines := list(islice(source, BATCH_LINES)):
        parsed = parse(pa.array([line.removesuffix(b"\n") for line in lines], pa.binary()))
        found: dict[int, bytes | Reject] = {each.row: each._replace(row=before + each.row) for each in parsed.rejects()}
        found |= dict(zip(parsed.rows.tolist(), parsed.values.to_pylist(), strict=True))
        yield from (found[row] for row in range(len(lines)))
        before += len(lines)


def cleanse(
    parse: Parse, source: IO[bytes], sink: IO[bytes], reject: Callable[[int, Reject, bytes], object]
) -> tuple[int, int]:
    """
    Write the cleansed form of each line to `sink`, in order; return the numbers of all lines and of rejected ones.

    `reject` is called for each rejected line with its number, from 1, the reject, and the line.
    """
    before = rejected = 0
    while lines := list(islice(source, BATCH_LINES)):
        parsed = parse(pa.array([line.removesuffix(b"\n") for line in lines], pa.binary()))
        sink.writelines((value or b"") + b"\n" for value in parsed.values.to_pylist())
        for each in parsed.rejects():
            reject(before + each.row + 1, each, lines[each.row])
        before += len(lines)
        rejected += len(parsed.reject_rows)
    sink.flush()
    return before, rejected
