"""A service for the doctor to examine: a Kafka made of dicts and lists, and every instrument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NoReturn

import pyarrow as pa

from app.config import Loaded, read
from app.facts import OpenTransaction
from app.model import CommittedOffset, Partition, TaskConfig, Watermarks
from app.offsets.metadata import Counts, OffsetMetadata
from app.operate.doctor import Doctor, Examination, Instruments
from app.records import Record
from parsers.contract import Parsed
from tests.fakes.audits import CLEAN, RAW, FakeCleanse, Topic, line
from tests.fakes.driver import DriverKafka

END = 9


class PatientKafka(DriverKafka):
    """A Kafka with `END` records in one source partition, all of them committed."""

    def __init__(self) -> None:
        super().__init__(p0=(0, END))
        self.committed = {RAW: CommittedOffset(END, str(OffsetMetadata(counts=Counts(END))))}
        self.outputs = {CLEAN: Watermarks(0, END, END)}
        self.keeps: float | None = None
        """For how many seconds every topic keeps its records."""

    def retention(self, name: str) -> float | None:
        return self.keeps

    def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
        wanted = list(partitions)
        written = {each: self.outputs.get(each, Watermarks(0, 0, 0)) for each in wanted if each.topic != "raw"}
        return written | super().watermarks([each for each in wanted if each.topic == "raw"])

    def offsets_at(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int | None]:
        return dict.fromkeys(partitions, 0)


class FirstTimes:
    """The times of first records, in milliseconds."""

    def __init__(self) -> None:
        self.known: dict[Partition, int | None] = {}

    def times(self, offsets: Mapping[Partition, int]) -> dict[Partition, int | None]:
        return {each: self.known.get(each) for each in offsets}


class Patient:
    """
    A healthy service. A test makes it ill before it examines it.

    Args:
        assignments: keys of the configuration.
    """

    def __init__(self, *assignments: str) -> None:
        here = ["group.id=g", "source.topics=raw", "sink.topic=clean", "dead.letters.topic=dead", "http.enabled=false"]
        self.loaded: Loaded = read(None, [*here, "kafka.bootstrap.servers=nowhere:9092", *assignments], {})
        self.kafka = PatientKafka()
        self.records = [Record(RAW, at, 1_000 + at, b"k", b"good %d" % at, []) for at in range(END)]
        self.lines = [line(each, at) for at, each in enumerate(self.records)]
        self.first_records = FirstTimes()
        self.first_lines = FirstTimes()
        self.open: list[OpenTransaction] = []
        self.url = ""
        self.works: Callable[[], object] = self._commit
        """What happens while the doctor watches."""
        self.done: list[int] = []
        """How many parts each call of the doctor's progress said were done."""

    def _commit(self) -> None:
        """Store the same offset again, as an idle service does."""
        at = self.kafka.committed[RAW]
        self.kafka.committed[RAW] = replace(at, metadata=f"{at.metadata}.")

    def instruments(self) -> Instruments:
        return Instruments(
            self.kafka.clients,
            self.first_records,
            self.first_lines,
            Topic(self.records),  # type: ignore[arg-type]  # all that an audit reads
            Topic(self.lines),  # type: ignore[arg-type]
            lambda _: self.open,
            self._cleanse,
            _parse,
        )

    @contextmanager
    def _cleanse(self, _tasks: TaskConfig) -> Iterator[FakeCleanse]:
        yield FakeCleanse()

    def examine(self, instruments: Instruments | None = None) -> Examination:
        doctor = Doctor(self.loaded, instruments or self.instruments(), self.url, lambda _: self.works())
        return doctor.examine(self.done.append)


def _parse(lines: pa.BinaryArray) -> Parsed:
    raise AssertionError(f"there is no sample among {len(lines)} lines")


def broken(*_: object) -> NoReturn:
    """Fail as no part expects."""
    raise ZeroDivisionError("a line with SECRET content")
