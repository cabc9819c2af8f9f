"""
`winnow audit` of what the harness's workers have written: `python -m tests.chaos.audit OPTIONS`.

They label their transactions (`tests.chaos.work`). The audit gets the records as the product itself would have written
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.cli import main
from app.kafka.records import KafkaRecords
from app.records import Record
from tests.chaos.readers import COUNT

LABEL = b"|"
read = KafkaRecords.batches


def batches(self: KafkaRecords, *where: Any) -> Iterator[list[Record]]:
    """Yield what the product's own method does, without labels."""
    for batch in read(self, *where):
        yield [each._replace(key=_without_label(each.key)) for each in batch if COUNT not in dict(each.headers)]


def _without_label(key: bytes | None) -> bytes | None:
    return None if key is None else key.partition(LABEL)[0]


if __name__ == "__main__":
    KafkaRecords.batches = batches  # type: ignore[assignment]  # the harness's own process
    main(prog_name="winnow")
