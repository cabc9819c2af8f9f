"""Which error branches of the product the schedules have reached: each `raise`, and each handler of an exception."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("app/kafka", "app/executor", "app/driver")
LEFT_OUT = ("app/kafka/bulk", "app/kafka/validation.py", "app/kafka/handshake.py", "app/driver/diagnostics.py")
"""What no schedule runs."""
Place = tuple[str, int]
"""A file and the line of an error branch in it."""


def places() -> dict[Place, str]:
    """Return every error branch, with its source line."""
    found: dict[Place, str] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if not name.startswith(LEFT_OUT):
                text = path.read_text()
                for line in _lines(ast.parse(text)):
                    found[name, line] = text.splitlines()[line - 1].strip()
    return found


def _lines(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            yield node.lineno
        elif isinstance(node, ast.ExceptHandler):
            yield node.body[0].lineno


@contextmanager
def untraced() -> Iterator[set[Place]]:
    """Watch nothing."""
    yield set()


@contextmanager
def traced() -> Iterator[set[Place]]:
    """Collect the branches that are reached in the block."""
    wanted, reached = places(), set[Place]()
    lines: dict[CodeType, set[int]] = {}
    """The lines of each function that have not been reached."""

    def of(code: CodeType) -> set[int]:
        if code not in lines:
            file = code.co_filename
            name = file[len(str(ROOT)) + 1 :] if file.startswith(str(ROOT)) else ""
            own = {line for _, _, line in code.co_lines() if line is not None and (name, line) in wanted}
            lines[code] = own
        return lines[code]

    def call(frame: FrameType, event: str, _: object) -> Any:
        return line if event == "call" and of(frame.f_code) else None

    def line(frame: FrameType, event: str, _: object) -> Any:
        left = lines[frame.f_code]
        if event == "line" and frame.f_lineno in left:
            left.discard(frame.f_lineno)
            reached.add((frame.f_code.co_filename[len(str(ROOT)) + 1 :], frame.f_lineno))
        return line

    threading.settrace(call)
    sys.settrace(call)
    try:
        yield reached
    finally:
        sys.settrace(None)
        threading.settrace(None)


def missed(reached: set[Place]) -> str:
    """Return the branches that no schedule reached, and how many there are."""
    every = places()
    left = [f"{file}:{line}: {text}" for (file, line), text in every.items() if (file, line) not in reached]
    return "\n".join([*left, f"{len(every) - len(left)} of {len(every)} error branches reached"])
