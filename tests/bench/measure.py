"""Measures a job from outside: the growth of its output, and the CPU time and memory of its processes."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from app.demo.verify import BATCH, CONSUMER
from app.embedded.process import ManagedProcess
from tests.bench.job import Job
from tests.bench.systems import Contender

EVERY_SECONDS = 0.25
LONGEST_SECONDS = 900


class InvalidRun(Exception):
    """A run whose numbers must not be used."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of a running job at one moment."""

    time: float
    offsets: int
    job_cpu: float
    broker_cpu: float


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one run between 10 % and 90 % of its output."""

    records_per_second: float
    cpu_per_million: float
    broker_cpu_per_million: float
    worker_mib: float
    worker_threads: int


def medians(results: Sequence[Result]) -> Result:
    """Return the median of each figure."""
    return Result(*(statistics.median(getattr(result, each.name) for result in results) for each in fields(Result)))


def run(system: Contender, job: Job, broker_pid: int, records: int) -> Result:
    """Run a job to its end while sampling it. Raise InvalidRun unless it writes every record exactly once."""
    log = job.folder / "log"
    process = ManagedProcess(system.command(job), log, cwd=job.folder)
    watch = _Watch(job, process.pid, broker_pid)
    try:
        watch.until_end_of(process)
    finally:
        process.stop_and_wait()
    if code := process.poll():
        message = f"{system.name} ended with exit code {code}:\n{_tail(log)}"
        raise InvalidRun(message)
    written = count(job)
    if written != records:
        message = f"{system.name} wrote {written} records of {records}:\n{_tail(log)}"
        raise InvalidRun(message)
    return steady(watch.samples, records, watch.worker_mib, watch.worker_threads)


def steady(samples: list[Sample], records: int, worker_mib: float, worker_threads: int) -> Result:
    """Return the figures between 10 % and 90 % of the output. Commit markers are spread evenly and cancel out."""
    last = max(sample.offsets for sample in samples)
    begin, end = _at(samples, 0.1 * last), _at(samples, 0.9 * last)
    millions = 0.8 * records / 1e6
    return Result(
        millions * 1e6 / (end.time - begin.time),
        (end.job_cpu - begin.job_cpu) / millions,
        (end.broker_cpu - begin.broker_cpu) / millions,
        worker_mib,
        worker_threads,
    )


def _at(samples: list[Sample], offsets: float) -> Sample:
    """Return the sample at this many written offsets, interpolated between its neighbours."""
    after = next(number for number, sample in enumerate(samples) if sample.offsets >= offsets)
    if after == 0:
        return samples[0]
    one, other = samples[after - 1], samples[after]
    fraction = (offsets - one.offsets) / (other.offsets - one.offsets)
    return Sample(
        one.time + fraction * (other.time - one.time),
        round(offsets),
        one.job_cpu + fraction * (other.job_cpu - one.job_cpu),
        one.broker_cpu + fraction * (other.broker_cpu - one.broker_cpu),
    )


class _Watch:
    """Samples a job at a fixed interval."""

    def __init__(self, job: Job, pid: int, broker_pid: int) -> None:
        self._admin = AdminClient({"bootstrap.servers": job.bootstrap, "log_level": 0})
        self._places = places(job)
        self._job, self._broker = psutil.Process(pid), psutil.Process(broker_pid)
        self.samples: list[Sample] = []
        self.worker_mib = 0.0
        self.worker_threads = 0

    def until_end_of(self, process: ManagedProcess) -> None:
        """Sample until the process ends."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < deadline:
            self._sample()
            try:
                process.wait(EVERY_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            self._sample()
            return
        message = f"still running after {LONGEST_SECONDS} s"
        raise InvalidRun(message)

    def _sample(self) -> None:
        """Take a sample."""
        processes = _tree(self._job)
        workers = [process for process in processes if is_worker(process)]
        self.worker_mib = max([self.worker_mib, *map(peak_mib, workers)])
        self.worker_threads = max([self.worker_threads, *map(threads, workers)])
        job_cpu = sum(cpu_seconds(process) for process in processes)
        if self.samples:  # the CPU time of ended processes is known from the previous sample
            job_cpu = max(job_cpu, self.samples[-1].job_cpu)
        broker_cpu = sum(cpu_seconds(process) for process in _tree(self._broker))
        self.samples.append(Sample(time.monotonic(), self._offsets(), job_cpu, broker_cpu))

    def _offsets(self) -> int:
        """Return the sum of the end offsets of all partitions of both topics, committed or not."""
        asked = {place: OffsetSpec.latest() for place in self._places}  # type: ignore[no-untyped-call]
        answers = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return sum(answer.result(30).offset for answer in answers.values())


def places(job: Job) -> list[TopicPartition]:
    """Return the partitions that a job writes to."""
    sink = [TopicPartition(job.sink, partition) for partition in range(job.partitions)]
    return [*sink, TopicPartition(job.dead_letters, 0)]


def count(job: Job) -> int:
    """Return how many records a read_committed consumer finds in the sink and the dead-letter topic."""
    consumer = Consumer({**CONSUMER, "bootstrap.servers": job.bootstrap})
    consumer.assign([TopicPartition(place.topic, place.partition, OFFSET_BEGINNING) for place in places(job)])
    found, unread = 0, {(place.topic, place.partition) for place in places(job)}
    while unread:
        for message in consumer.consume(BATCH, 1):
            error = message.error()
            if error is None:
                found += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard((message.topic(), message.partition()))
    consumer.close()
    return found


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and the children it has reaped."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def is_worker(process: psutil.Process) -> bool:
    """Return whether a process is a Python worker of Spark rather than the driver or the JVM."""
    try:
        return any(word.startswith(("pyspark.", "app.spark.", "tests.bench.timed")) for word in process.cmdline())
    except psutil.Error:
        return False


def threads(process: psutil.Process) -> int:
    """Return how many threads a process has."""
    try:
        return int(process.num_threads())
    except psutil.NoSuchProcess:
        return 0


def peak_mib(process: psutil.Process) -> float:
    """Return the peak resident memory of a process, in MiB."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0.0)


def _tree(root: psutil.Process) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-25:])
