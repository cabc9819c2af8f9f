"""`winnow demo`: runs the service on an embedded real Kafka, and verifies its output from outside."""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from rich.console import Console
from rich.progress import Progress

from app.demo.background import BackgroundVerification
from app.demo.board import Board
from app.demo.feed import load, to_kafka
from app.demo.lines import Recipe
from app.demo.verify import CONSUMER, Verification, VerificationFailed, VerificationResult
from app.embedded.broker import Broker
from app.embedded.process import ManagedProcess
from app.errors import NotUsable
from app.events import Event

SOURCE, SINK, DEAD_LETTERS, GROUP = "raw-logs", "clean-logs", "raw-logs.dlq", "idc-cleansing"
PARTITIONS = 8
LOOK_SECONDS = 0.2
OF_ANOTHER_SPARK = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS")
"""Variables that name another Spark, its settings, or a Python that lacks Winnow."""

console = Console()


def show(records: int, *, keep: bool, rate: int = 0) -> int:
    """
    Produce, cleanse and verify lines; return 0 if all is well. Raises NotUsable without Java or Kafka's jars.

    Args:
        keep: whether to keep everything running afterwards.
        rate: how many lines per second to produce then.
    """
    recipe = Recipe(partitions=PARTITIONS, count=records, bad=0.02, enveloped=0.1)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it, too, ends the broker and the service
    try:
        with tempfile.TemporaryDirectory(prefix="winnow-demo-") as folder, _broker(Path(folder)) as (broker, file):
            _produce(broker, recipe)
            result, ended, page = _cleanse(file, broker, recipe)
            _print_result(result, recipe, broker)
            if keep:
                _go_on(file, broker, page, rate)
            else:
                console.print(
                    f"\nto explore further, keep it running: {sys.argv[0]} demo --keep --rate 1000", soft_wrap=True
                )
    except VerificationFailed as error:
        raise NotUsable(str(error)) from error
    return 1 if result.faults or ended else 0


@contextmanager
def _broker(folder: Path) -> Iterator[tuple[Broker, Path]]:
    """Start Kafka while `winnow check` compiles the kernels; yield it and the service's configuration file."""
    console.print("[bold]1[/] starting Apache Kafka 4.3.0 on loopback")
    broker = Broker()
    file = _configuration(folder, broker.bootstrap)
    with _winnow(folder / "check.log", "check", "-c", str(file)) as kernels, broker:
        for topic, partitions in ((SOURCE, PARTITIONS), (SINK, PARTITIONS), (DEAD_LETTERS, 2)):
            broker.create_topic(topic, partitions)
        kernels.wait()
        yield broker, file


def _winnow(log: Path, *arguments: str) -> ManagedProcess:
    ours = {name: value for name, value in os.environ.items() if name not in OF_ANOTHER_SPARK}
    return ManagedProcess([sys.executable, "-m", "app.cli", *arguments], log, environment=ours)


def _configuration(folder: Path, bootstrap: str) -> Path:
    file = folder / "winnow.yaml"
    settings = {
        "group.id": GROUP,
        "source": {"topics": [SOURCE], "format": "auto"},
        "sink": {"topic": SINK},
        "dead.letters": {"topic": DEAD_LETTERS},
        "kafka": {"bootstrap.servers": bootstrap},
        "spark": {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.log.level": "OFF"},
        "http": {"port": 0},
    }
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    return file


def _produce(broker: Broker, recipe: Recipe) -> None:
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("producing", total=recipe.count)
        load(broker.bootstrap, SOURCE, recipe, progress=partial(progress.advance, bar))
    console.print(f"[bold]2[/] produced {recipe.count:,} raw lines to {SOURCE} ({recipe.partitions} partitions)")


def _cleanse(file: Path, broker: Broker, recipe: Recipe) -> tuple[VerificationResult, int, str]:
    """Run the service as a user would and verify its output meanwhile; return result, exit code and page."""
    console.print(f"[bold]3[/] winnow run -c {file} --until-end", soft_wrap=True)
    log = file.with_name("winnow.log")
    # For the group's offsets. With read_committed, the request would wait while a transaction is about to commit one.
    own = {"group.id": GROUP, "isolation.level": "read_uncommitted", "bootstrap.servers": broker.bootstrap}
    start = partial(Verification, broker.bootstrap, recipe, source=SOURCE, sink=SINK, dead_letters=DEAD_LETTERS)
    with (
        BackgroundVerification(start) as verification,
        _winnow(log, "run", "-c", str(file), "--until-end") as service,
        Consumer({**CONSUMER, **own}) as consumer,
        Board(console, recipe.count, f"{SOURCE} ▶ {SINK}") as board,
    ):
        page, done = "", 0
        while (ended := service.poll()) is None:
            if not page and (page := page_in(log.read_text(errors="replace"))):
                console.print(f"  status page: {page}", soft_wrap=True)
            done = _committed(consumer, done)
            board.show(done, verification.latest(LOOK_SECONDS))
        verification.finish()
        done = _committed(consumer, done)
        while not verification.done:
            board.show(done, verification.latest(LOOK_SECONDS), ended=True)
        result = verification.latest()
    if ended:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        console.print(f"[red]the service exited with code {ended}:[/]\n{tail}", highlight=False)
    return result, ended, page


def page_in(log: str) -> str:
    """Return the URL of the status page from the service's log; empty before it is logged."""
    found = re.search(rf'"event": "{Event.STATUS_PAGE_UP.key}".*"url": "([^"]+)"', log)
    return found[1] if found else ""


def _committed(consumer: Consumer, last: int) -> int:
    """Return the sum of the group's offsets, or the last one while a new cluster's coordinators move."""
    partitions = [TopicPartition(SOURCE, number) for number in range(PARTITIONS)]
    with suppress(KafkaException):  # the sum is only displayed
        return sum(max(0, place.offset) for place in consumer.committed(partitions, 30))
    return last


def _print_result(result: VerificationResult, recipe: Recipe, broker: Broker) -> None:
    right = f"[red]WRONG: {result.faults}[/]" if result.faults else "[green]equal[/]"
    lost, doubled, disordered = (result.faults.get(kind, 0) for kind in ("lost", "doubled", "out_of_order"))
    console.print("[bold]4[/] verified by a read_committed consumer that shares no code with Winnow:")
    console.print(
        f"  in {recipe.count:,} = out {result.out:,} + dead letters {result.dead:,}: {right}; lost {lost}, "
        f"doubled {doubled}, out of order {disordered}",
        soft_wrap=True,
    )
    console.print("\nthree cleansed lines:")
    for message in _first(broker.bootstrap, SINK, 3):
        console.print(f"  {(message.value() or b'').decode()}", markup=False, highlight=False, soft_wrap=True)
    for message in _first(broker.bootstrap, DEAD_LETTERS, 1):
        console.print("\na dead letter: the original record, and why it was rejected:")
        console.print(f"  {message.value()!r}", markup=False, highlight=False, soft_wrap=True)
        for name, value in dict(message.headers() or ()).items():
            told = value.decode() if isinstance(value, bytes) else value
            console.print(f"  {name}: {told}", markup=False, soft_wrap=True)


def _first(bootstrap: str, topic: str, count: int) -> list[Message]:
    with Consumer({**CONSUMER, "enable.partition.eof": False, "bootstrap.servers": bootstrap}) as consumer:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        return consumer.consume(count, 5)


def _go_on(file: Path, broker: Broker, page: str, rate: int) -> None:
    """Run the service again, without an end and on the same port, until Ctrl-C."""
    port = f"http.port={urlsplit(page).port or 0}"
    with _winnow(file.with_name("winnow.log"), "run", "-c", str(file), "--set", port):
        flow = f", and {rate:,} new lines per second flow" if rate else ""
        console.print(
            f"\nKafka ({broker.bootstrap}) and the service keep running{flow} until Ctrl-C. To explore further:"
        )
        console.print(f"  {page}", soft_wrap=True)
        console.print(f"  {sys.argv[0]} check --connect -c {file}", soft_wrap=True)
        with suppress(KeyboardInterrupt):
            if rate:
                to_kafka(broker.bootstrap, SOURCE, rate, math.inf)
            else:
                signal.pause()
