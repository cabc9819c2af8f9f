"""Damages good lines and events in ways that are likely to hit an edge case of a parser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

Value = TypeVar("Value")

SEPARATOR = b"<<<!>>>,<<<!>>>"
# Parts of markers and line ends; bounds of what checks allow; valid and broken UTF-8; Avro numbers at their limits.
TOKENS = (
    *(b"<<<!>>>", SEPARATOR, b"<<<!>>", b"<", b">", b",", b"|", b"%", b"\r", b"\n", b"\r\n", b" ", b"\t", b"\x00"),
    *(b"0", b"80", b"65535", b"65536", b"00000000000000000080", b"-1", b"20240229235959", b"20230229000000"),
    *(b"0.0.0.0", b"255.255.255.255", b"256.1.1.1", b"01.1.1.1", b"::", b"::1", b"1:2:3:4:5:6:7:8", b"::ffff:1.2.3.4"),
    *(
        b"\x7f",
        b"\x1b",
        b"\x80",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf0\x9f\x98\x80",
        b"\xf0\x9f\x98",
    ),
    *("中".encode(), "中".encode("gbk"), b"x" * 15, b"x" * 31, b"x" * 63, b"x" * 64, b"|" * 33, b"\xff" * 65),
    *(b"\x01", b"\x02", b"\x03", b"\x80\x01", b"\xff" * 9, b"\xff" * 8 + b"\x7f", b"\xfe" + b"\xff" * 8 + b"\x01"),
)


class Mutator:
    """
    Makes new values out of known ones.

    Args:
        seeds: the known values; at least one, none of them empty.
        random: makes every decision, so that its seed reproduces a run.
    """

    def __init__(self, seeds: Sequence[bytes], random: Random) -> None:
        """Collect the fields of all seeds, to exchange them."""
        self._seeds = seeds
        self._random = random.random
        self._fields = list({field for seed in seeds for field in seed[7:-7].split(SEPARATOR) if len(field) < 400})
        self._edits: tuple[Callable[[bytes], bytes], ...] = (
            self._another_field,
            self._another_field,
            self._inserted,
            self._cut,
            self._flipped,
            self._repeated,
            self._spliced,
        )

    def values(self, count: int) -> list[bytes | None]:
        """Return this many values; one in a hundred is null."""
        return [None if self._random() < 0.01 else self._mutated() for _ in range(count)]

    def _mutated(self) -> bytes:
        value = self._one_of(self._seeds)
        for _ in range(self._below(3)):
            value = self._one_of(self._edits)(value)
        return value

    def _another_field(self, value: bytes) -> bytes:
        fields = value.split(SEPARATOR)
        fields[self._below(len(fields))] = self._one_of(self._fields if self._random() < 0.7 else TOKENS)
        return SEPARATOR.join(fields)

    def _inserted(self, value: bytes) -> bytes:
        at = self._below(len(value) + 1)
        return value[:at] + self._one_of(TOKENS) + value[at:]

    def _cut(self, value: bytes) -> bytes:
        at = self._below(len(value) + 1)
        return value[:at] + value[at + self._below(20) :] if self._random() < 0.8 else value[:at]

    def _flipped(self, value: bytes) -> bytes:
        at = self._below(len(value) + 1)
        return value[:at] + bytes([self._below(256)]) + value[at + 1 :]

    def _repeated(self, value: bytes) -> bytes:
        at, size = self._below(len(value) + 1), self._below(70)
        return value[:at] + value[at : at + size] * 2 + value[at + size :]

    def _spliced(self, value: bytes) -> bytes:
        other = self._one_of(self._seeds)
        return value[: self._below(len(value) + 1)] + other[self._below(len(other)) :]

    def _below(self, end: int) -> int:
        return int(self._random() * end)

    def _one_of(self, choices: Sequence[Value]) -> Value:
        return choices[int(self._random() * len(choices))]
