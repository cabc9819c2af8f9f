"""`winnow init`: writes a first configuration for a sample of lines."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import click

from app import config, cures
from app.cli.options import PATH, clients, reports_errors
from app.errors import ConfigError
from app.operate import beginning
from parsers.proposals import Proposal, propose

SHOWN = 200
"""How many characters of a line are shown."""


@click.command(epilog="Example: winnow init --sample access.log -o winnow.yaml")
@click.option("--sample", type=click.File("rb"), required=True, metavar="FILE|-", help="Lines as the source has them.")
@click.option(
    "-o", "--output", "file", type=PATH, metavar="FILE", help="Write the configuration to this file instead of stdout."
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option(
    "--bootstrap", metavar="HOST:PORT", help="Ask this cluster, and print the commands that create what is missing."
)
@click.option("--topic", default="raw-logs", show_default=True, help="The source topic.")
@reports_errors
def init(sample: IO[bytes], file: Path | None, force: bool, bootstrap: str | None, topic: str) -> int:  # noqa: FBT001  # click's flag
    """
    Write a configuration for a file of your own logs. It looks at the first 1,000 lines and chooses a parser.

    The configuration goes to stdout or to the file of -o, and what it is based on to stderr. Exits with 1 if no parser
    takes at least half of the lines. It changes nothing in Kafka.
    """
    if not re.fullmatch(r"(?!\.{1,2}$)[\w.-]{1,200}", topic, re.ASCII):
        raise click.UsageError(f"--topic: {topic!r} cannot be the name of a topic")
    if file is not None and os.path.lexists(file) and not force:
        raise click.UsageError(f"{file} exists: --force replaces it")
    lines = beginning.lines_of(sample)
    found = propose(lines)
    if not found or found[0].share < beginning.ENOUGH:
        _say(_nothing_fits(found, lines, sample.name))
        return 1
    best = found[0]
    _say(_reasons(found, lines))
    values = beginning.configuration(best, lines, topic, bootstrap or "localhost:9092")
    prepared = list(_prepared(config.Config.model_validate(values))) if bootstrap else []
    text = beginning.written(values)
    if file is None:
        click.echo(text, nl=False)
    else:
        try:
            with file.open("w" if force else "x", encoding="utf-8") as opened:
                opened.write(text)
        except OSError as error:
            raise ConfigError((f"--output: {file}: {error.strerror}",)) from None
    _say([*prepared, *_next(file)])
    return 0


def _say(lines: Sequence[str]) -> None:
    click.echo("\n".join(lines), err=True)


def _reasons(found: Sequence[Proposal], lines: Sequence[bytes]) -> list[str]:
    best, *others = found
    said = [f"the parser {best} takes {_taken(best)}"]
    if best.has_header:
        said.append("line 1 names the fields: the source should not have it")
    if others:
        said.append(f"the next best, {others[0]}, takes {_taken(others[0])}")
    return [*said, *_rejected(best, lines)]


def _nothing_fits(found: Sequence[Proposal], lines: Sequence[bytes], name: str) -> list[str]:
    if not lines:
        return [f"winnow: {name} has no lines"]
    said = [f"winnow: no parser takes {'at least half of the lines' if found else 'any line'} of {name}"]
    for best in found[:1]:
        said += [f"the closest, {best}, takes {_taken(best)}", *_rejected(best, lines)]
    return [*said, "docs/parsers.md shows what each parser reads; its regex takes a pattern of your own"]


def _taken(found: Proposal) -> str:
    return f"{len(found.outputs):,} of {found.records:,} lines ({found.share:.1%})"


def _rejected(found: Proposal, lines: Sequence[bytes]) -> Iterator[str]:
    if reject := beginning.example(found, lines):
        yield f"it rejects line {reject.row + 1} as {reject.reason}: {reject.detail}"
        yield f"  {_shown(lines[reject.row])}"


def _shown(line: bytes) -> str:
    text = repr(line.decode(errors="backslashreplace"))[1:-1]
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _prepared(settings: config.Config) -> Iterator[str]:
    """Yield what the cluster has, and the commands for what it has not."""
    cluster = next(iter(clients(settings).clusters or ()))
    names = beginning.topics_of(settings)
    topics, brokers = cluster.topics(names), cluster.size()
    yield f"the cluster has {brokers} broker{'s' * (brokers != 1)}"
    for name in names:
        yield f"topic {name} " + (f"has {topics[name].partitions} partitions" if name in topics else "is missing")
    if commands := beginning.creations(settings, brokers, topics, cluster.tools):
        yield from ("", "create the missing topics:", *_indented(commands))
    granted = beginning.grants(settings, cluster.tools)
    yield from ("", "if the cluster checks rights, grant them to the user of the service:", *_indented(granted), "")


def _next(file: Path | None) -> list[str]:
    line = cures.CommandLine(f"-c {shlex.quote(str(file or cures.FILE))}")
    begun = [f"{file} is written"] if file else []
    return [*begun, "next:", *_indented(map(line.exact, (cures.CHECK, cures.RUN)))]


def _indented(commands: Iterable[str]) -> list[str]:
    return [f"  {each}" for each in commands]
