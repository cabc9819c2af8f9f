"""
Writes docs/screens.md: what each command prints in a terminal, so that the page shows what the program prints.

    python -m tests.captures

The service and the commands are real, on an embedded Kafka; only the names of this machine's places are replaced.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.demo import feed
from app.demo.lines import Recipe
from app.embedded.broker import Broker, HeldPorts
from tests.integration.service import Winnow, settings
from tests.support.docs import ROOT
from tests.support.java import quick_java

PAGE = ROOT / "docs/screens.md"
COLUMNS, LINES = 80, 24
PARTITIONS, RATE, LOAD_SECONDS = 6, 400, 3_600.0
TOPICS = {"raw-logs": PARTITIONS, "clean-logs": PARTITIONS, "raw-logs.dlq": 2, "trial": PARTITIONS, "trial.dlq": 2}
FILTERS = [{"name": "images", "drop": {"field": "url", "matches": r"\.(gif|jpg|png)"}, "limit": 0.9}]
QUIT_AFTER = {"winnow top": 11.0}
"""When to press `q`, in seconds: once there is something to see."""
SAYING = ("winnow init", "winnow parse -c")
"""The commands whose messages belong to what a person sees."""
COMMANDS: Mapping[str, str] = {
    "winnow --help": "The commands, by what you want to do.",
    "winnow init --sample nginx.log --topic web-logs -o web.yaml": "A configuration for a file of your own logs.",
    "winnow parse -c web.yaml nginx.log": "What becomes of its lines? The table counts the rejects.",
    "winnow parsers idc-access-log": "What can a parser be told?",
    "winnow check --connect": "Could the service start?",
    "winnow doctor": "What is wrong?",
    "winnow lag": "Does the service keep up?",
    "winnow top": "Where does it lag, and how fast does it work? A screen that stays, until `q`.",
    "winnow tap --limit 2": "What arrives now, and what becomes of it?",
    "winnow filters": "What do filters drop?",
    "winnow dlq stats": "What is rejected?",
    "winnow dlq ls": "The last of it.",
    "winnow dlq show PLACE": "One of it, in full.",
    "winnow dlq replay --dry-run": "What would become of it now?",
    "winnow audit --last 1h": "Is anything lost, doubled or changed?",
    "winnow replay --last 1h --into trial": "The last hour once more, into another topic.",
    "winnow offsets show": "Where is the group, and who has committed that?",
    "winnow offsets reset --shift-by -1000 --dry-run": "Where would it go?",
    "winnow offsets migrate --from kafka --to '{name: files, url: \"file:///srv/volume/offsets\"}' --dry-run": (
        "What would another store get?"
    ),
    "winnow transactions ls": "What is open in the sink?",
    "winnow transactions abort --dry-run": "What would be aborted, if no service worked?",
    "winnow pause": "Stop the flow, and wait until it stands.",
    "winnow resume": "And let it flow again.",
}
"""What is typed, and what for."""
NOT_CAPTURED = {
    "winnow config": "docs/configuration.md shows it, and a test runs it",
    "winnow demo": "it draws over what it drew; README.md has what stays",
    "winnow run": "its screen is the status page, whose pictures docs/observability.md has",
    "winnow offsets history": "it needs HBase",
}
STORE = "/srv/volume/offsets"
SAMPLE = "".join(
    f'203.0.113.{n} - - [24/Nov/2026:06:00:{n:02} +0000] "GET /a HTTP/1.1" 200 612 "-" "curl/8"\n' for n in range(1, 4)
)
HEAD = f"""\
# Screens

What each command prints in a terminal of {COLUMNS} columns, while a service works on {RATE} records/s in {PARTITIONS} partitions. `make captures` runs the
commands on an embedded Kafka and writes this page. [Operating](operating.md) and [Audit and replay](audit-and-replay.md) explain them.
"""
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
HOME, LEAVE = "\x1b[H", "\x1b[?1049l"


def captured(
    command: Sequence[str], folder: Path, *, quit_after: float | None = None, with_messages: bool = False
) -> str:
    """Run a command in a terminal, and return what it shows at its end; of a screen, what it shows when `q` is pressed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    # Without its messages, stderr is no terminal: a progress bar leaves nothing behind that could be shown here.
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, "TERM": "xterm", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs if with_messages else subprocess.DEVNULL,
        start_new_session=True,
    ):
        os.close(theirs)
        text = b"".join(_read(ours, quit_after)).decode()
    os.close(ours)
    frame = text.partition(LEAVE)[0].rpartition(HOME)[2]
    return "\n".join(line.rstrip() for line in CONTROL.sub("", frame).splitlines()).strip("\n")


def _read(terminal: int, quit_after: float | None) -> Iterator[bytes]:
    """Yield what is written to a terminal until its program ends; press `q` so long after the first of it."""
    due: float | None = None
    while True:
        left = None if due is None else max(0.0, due - time.monotonic())
        if not select.select([terminal], [], [], left)[0]:
            os.write(terminal, b"q")
            due = None
            continue
        try:
            written = os.read(terminal, 1 << 16)
        except OSError:  # how Linux reports the end of a terminal
            return
        if quit_after is not None:
            due, quit_after = time.monotonic() + quit_after, None
        yield written


@contextmanager
def working(folder: Path) -> Iterator[dict[str, str]]:
    """Run a service under a small load; yield the places of this machine, and what stands for them on the page."""
    (port,) = held = HeldPorts(1)
    with Broker(java=quick_java()) as broker:
        for topic, partitions in TOPICS.items():
            broker.create_topic(topic, partitions)
        source, sink, dead, *_ = TOPICS
        http = {"port": port}
        config = settings(
            broker.bootstrap, group="idc-cleansing", sources=[source], sink=sink, dead=dead, http=http, filter=FILTERS
        )
        (folder / "winnow.yaml").write_text(json.dumps(config))
        (folder / STORE.strip("/")).mkdir(parents=True)
        (folder / "nginx.log").write_text(f"{SAMPLE}rubbish\n")
        now = round(time.time() * 1000)
        feed.load(broker.bootstrap, source, Recipe(PARTITIONS, 20_000, bad=0.02, first_timestamp=now - 60_000))
        load = threading.Thread(target=feed.to_kafka, args=(broker.bootstrap, source, RATE, LOAD_SECONDS), daemon=True)
        with Winnow(config, folder) as service:
            service.wait_for("progress")
            load.start()
            service.wait_for("progress", 5)
            yield {
                broker.bootstrap: "localhost:9092",
                f"127.0.0.1:{port}": "127.0.0.1:8090",
                f"{folder}{STORE}": STORE,
                f"{folder}/": "",
                socket.gethostname(): "vm",
            }
    assert held  # the port is reserved while this lives


def screens(folder: Path, places: Mapping[str, str]) -> Iterator[str]:
    """Yield the section of each command."""
    winnow = [sys.executable, "-m", "app.cli"]
    listed = subprocess.run(
        [*winnow, "dlq", "ls", "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    )
    letter = json.loads(listed.stdout)["dead_letters"][-1]
    for command, purpose in COMMANDS.items():
        typed = command.replace("PLACE", f"{letter['partition']}@{letter['offset']}")
        shown = captured(
            [*winnow, *shlex.split(typed.replace(STORE, f"{folder}{STORE}"))[1:]],
            folder,
            quit_after=QUIT_AFTER.get(command),
            with_messages=command.startswith(SAYING),
        )
        for place, name in places.items():
            shown = re.sub(rf"(?<!\w){re.escape(place)}", name, shown)
        print(f"$ {typed}\n{shown}\n")
        yield f"## `{command}`\n\n{purpose}\n\n```text\n$ {typed}\n{shown}\n```\n"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="winnow-captures-") as name, working(Path(name)) as places:
        PAGE.write_text("\n".join([HEAD, *screens(Path(name), places)]))


if __name__ == "__main__":
    main()
