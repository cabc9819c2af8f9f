"""`winnow demo`: the main job on an embedded real Kafka, watched and then audited from outside."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from rich.console import Console
from rich.live import Live
from rich.progress import Progress
from rich.table import Table

from app.demo import lines
from app.demo.lines import Recipe
from app.demo.verify import CONSUMER, Audit, Verdict
from app.embedded.broker import Broker, BrokerFailed
from app.embedded.jars import FetchFailed, JavaMissing
from app.errors import NotUsable
from app.model import Partition, Plugin
from app.offsets.contract import StoreContext
from app.offsets.registry import open_store

SOURCE, SINK, DEAD_LETTERS, GROUP = "raw-logs", "clean-logs", "raw-logs.dlq", "idc-cleansing"
PARTITIONS = 8
REDRAW_SECONDS = 0.5

console = Console()


def show(records: int, *, keep: bool) -> int:
    """
    Produce lines, cleanse them, count them; return 0 only if nothing is lost, doubled or out of order.

    Raises:
        NotUsable: if Java or Kafka's jars cannot be had here.
    """
    recipe = Recipe(partitions=PARTITIONS, count=records, bad=0.02, enveloped=0.1)
    try:
        with tempfile.TemporaryDirectory(prefix="winnow-demo-") as folder, _broker() as broker:
            file = _configuration(Path(folder), broker.bootstrap)
            _produce(broker, recipe)
            verdict, ended = _cleanse(file, broker, recipe)
            _tell(verdict, recipe, broker, file, keep=keep)
            if keep:
                _wait_for_ctrl_c()
    except (JavaMissing, FetchFailed, BrokerFailed) as error:
        raise NotUsable(str(error)) from error
    return 0 if verdict.ok and ended == 0 else 1


@contextmanager
def _broker() -> Iterator[Broker]:
    console.print("[bold]1[/] starting Apache Kafka 4.3.0 on loopback")
    with Broker() as broker:
        for topic, partitions in ((SOURCE, PARTITIONS), (SINK, PARTITIONS), (DEAD_LETTERS, 2)):
            broker.create_topic(topic, partitions)
        yield broker


def _configuration(folder: Path, bootstrap: str) -> Path:
    """Write what a user would write."""
    file = folder / "winnow.yaml"
    settings = {
        "group.id": GROUP,
        "source": {"topics": [SOURCE], "format": "auto"},
        "sink": {"topic": SINK},
        "dead.letters": {"topic": DEAD_LETTERS},
        "kafka": {"bootstrap.servers": bootstrap},
        "spark": {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.log.level": "OFF"},
    }
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    return file


def _produce(broker: Broker, recipe: Recipe) -> None:
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("producing", total=recipe.count)
        lines.load(broker.bootstrap, SOURCE, recipe, progress=lambda produced: progress.update(bar, completed=produced))
    console.print(f"[bold]2[/] produced {recipe.count:,} raw lines to {SOURCE} ({recipe.partitions} partitions)")


def _cleanse(file: Path, broker: Broker, recipe: Recipe) -> tuple[Verdict, int]:
    """Run the service as a user would, and read what it writes while it does."""
    command = [sys.executable, "-m", "app.cli", "run", "-c", str(file), "--until-end"]
    console.print(f"[bold]3[/] winnow run -c {file} --until-end")
    log = file.with_name("winnow.log")
    partitions = [Partition(SOURCE, number) for number in range(PARTITIONS)]
    kafka = open_store(Plugin("kafka"), StoreContext(GROUP, {"bootstrap.servers": broker.bootstrap}))
    audit = Audit(broker.bootstrap, recipe, source=SOURCE, sink=SINK, dead_letters=DEAD_LETTERS)
    with log.open("wb") as output, audit, _running(command, output.fileno()) as service:
        board = Board(recipe.count)
        with Live(board.draw(audit.verdict(), 0), console=console, auto_refresh=False) as live:
            while service.poll() is None:
                audit.poll(0.1)
                if board.due():
                    done = sum(committed.offset for committed in kafka.load(partitions, stable=True).values())
                    live.update(board.draw(audit.verdict(), done), refresh=True)
            verdict = audit.finish()
            live.update(board.draw(verdict, recipe.count - verdict.lost), refresh=True)
    if not console.is_terminal:
        console.print()  # rich ends the line only on a terminal
    if service.returncode:
        console.print(f"[red]the service ended with {service.returncode}:[/]\n{_tail(log)}", highlight=False)
    return verdict, service.returncode


@contextmanager
def _running(command: list[str], output: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the service; stop it on the way out, whatever happened."""
    service = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield service
    finally:
        if service.poll() is None:
            service.terminate()
            try:
                service.wait(15)
            except subprocess.TimeoutExpired:
                service.kill()
                service.wait()


class Board:
    """The live table."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._drawn_at = 0.0
        self._last = (time.monotonic(), 0)
        self._fastest = 0.0

    def due(self) -> bool:
        """Tell whether it is time to draw again."""
        return time.monotonic() - self._drawn_at > REDRAW_SECONDS

    def draw(self, seen: Verdict, done: int) -> Table:
        """Draw what has been committed and what a reader of the topics has seen."""
        self._drawn_at = now = time.monotonic()
        before, counted = self._last
        rate = (seen.out + seen.dead - counted) / max(now - before, 0.001)
        self._last = now, seen.out + seen.dead
        self._fastest = max(self._fastest, rate if now - before > REDRAW_SECONDS / 2 else 0)
        table = Table("in", "out", "dead letters", "lag", "records/s", "fastest", title=f"{SOURCE} ▶ {SINK}")
        table.add_row(
            *(f"{number:,.0f}" for number in (done, seen.out, seen.dead, self._records - done, rate, self._fastest))
        )
        for reason, count in sorted(seen.dead_by_reason.items(), key=lambda item: -item[1]):
            table.add_row("", "", f"{count:,} {reason}", "", "", "")
        return table


def _tell(verdict: Verdict, recipe: Recipe, broker: Broker, file: Path, *, keep: bool) -> None:
    """Print the count, some lines, a dead letter, and how to look further."""
    right = "[green]equal[/]" if verdict.ok else f"[red]WRONG: {verdict.faults}[/]"
    console.print("[bold]4[/] counted by a read_committed consumer that shares no code with Winnow:")
    console.print(
        f"  in {recipe.count:,} = out {verdict.out:,} + dead letters {verdict.dead:,}: {right}; lost {verdict.lost}, "
        f"doubled {verdict.doubled}, out of order {verdict.out_of_order}"
    )
    console.print("\nthree cleansed lines:")
    for message in _first(broker.bootstrap, SINK, 3):
        console.print(f"  {(message.value() or b'').decode()}", markup=False, highlight=False, soft_wrap=True)
    for message in _first(broker.bootstrap, DEAD_LETTERS, 1):
        console.print("\na dead letter: its record as it came, and why it was rejected:")
        console.print(f"  {message.value()!r}", markup=False, highlight=False, soft_wrap=True)
        for name, value in dict(message.headers() or ()).items():
            told = value.decode() if isinstance(value, bytes) else value
            console.print(f"  {name}: {told}", markup=False, soft_wrap=True)
    if keep:
        console.print(f"\nKafka stays up at {broker.bootstrap} until Ctrl-C. To look further:")
        console.print(f"  {sys.argv[0]} check --connect -c {file}", soft_wrap=True)
    else:
        console.print(f"\nto look further, keep the broker running: {sys.argv[0]} demo --keep", soft_wrap=True)


def _first(bootstrap: str, topic: str, count: int) -> list[Message]:
    """Read the first records of a topic as any consumer would."""
    consumer = Consumer({**CONSUMER, "enable.partition.eof": False, "bootstrap.servers": bootstrap})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        return consumer.consume(count, 5)
    finally:
        consumer.close()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])


def _wait_for_ctrl_c() -> None:
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
