"""The long run: millions of damaged lines, batch after batch, on both engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from random import Random

from tests.fuzz.engines import Pair, access_log, check_headers, delimited
from tests.fuzz.formats import cases
from tests.fuzz.mutations import SEPARATOR, Mutator
from tests.samples import SOURCES, flume_events
from tests.samples import access_log as recorded_lines

BATCH = 2000


def seeds() -> tuple[list[bytes], list[bytes]]:
    """Return known lines, and known events of Flume; none is empty."""
    lines = [line for source in SOURCES for line in recorded_lines(source)[0] if line]
    return lines, [value for source in SOURCES for value, _ in flume_events(source)]


def batches(seed: int, corpus: Iterable[bytes] = ()) -> Iterator[tuple[Pair, list[bytes | None]]]:
    """
    Yield batches without end, each with the parser that it is for.

    Args:
        seed: repeats a run.
        corpus: values that go in besides the known lines and events.
    """
    random = Random(seed)
    lines, events = seeds()
    found = [value for value in corpus if value]
    line, event = Mutator([*lines, *found], random), Mutator([*events, *found], random)
    raw, auto, strict = access_log(), access_log("auto"), access_log("flume-avro")
    for number in count():
        match number % 10:
            case 5:
                yield auto, [*event.values(BATCH // 2), *line.values(BATCH // 2)]
            case 6:
                yield strict, event.values(BATCH)
            case 7:
                parser = delimited(random)
                yield parser, list(_resized(line.values(BATCH), parser))
            case 8 | 9:
                case = random.choice([*cases().values()])
                yield case.pair, [case.damaged(random) for _ in range(BATCH)]
            case _:
                yield raw, line.values(BATCH)


def run(wanted: int, seed: int, corpus: Sequence[bytes] = ()) -> Counter[str]:
    """
    Parse that many values or a few more, and return how many had which outcome.

    Raises:
        Disagreement: with the first value that the engines do not treat alike.
    """
    total: Counter[str] = Counter()
    for number, (parser, values) in enumerate(batches(seed, corpus), 1):
        total += parser.outcomes(values)
        if parser.made_of["format"] != "raw":
            check_headers(values)
        if number % 100 == 0:
            print(f"{total.total():,} lines", flush=True)
        if total.total() >= wanted:
            return total
    raise AssertionError("batches end")  # pragma: no cover - they never do


def _resized(values: Iterable[bytes | None], parser: Pair) -> Iterator[bytes | None]:
    """Give lines about as many fields as a parser of delimited lines expects, with its own separator."""
    marker = parser.made_of["marker"].encode()
    separator = marker + parser.made_of["separator"].encode() + marker
    width = len(parser.made_of["fields"])
    for number, value in enumerate(values):
        if value is None:
            yield None
            continue
        fields = value.removeprefix(b"<<<!>>>").split(SEPARATOR)
        at = number % max(1, len(fields) - width)
        yield marker + separator.join(fields[at : at + width + (number % 9 == 0)]) + marker
