"""A user's parser, installed as a package that the service finds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.packages import install

DEADLY = '''
import ctypes
import os
import time

from parsers.idc_access_log import IdcAccessLog

DEADLY = {b"exit": lambda: os._exit(3), b"crash": lambda: ctypes.string_at(0), b"hang": lambda: time.sleep(3_600)}


class Deadly(IdcAccessLog):
    """The built-in parser, which some lines kill or hang."""

    def parse(self, lines):
        for each in lines.to_pylist():
            if each in DEADLY:
                DEADLY[each]()
        return super().parse(lines)
'''


def installed(folder: Path, name: str, parser: str, source: str) -> Mapping[str, str]:
    """Install a module with a parser of this name in a folder. Return the environment in which it is found."""
    install(folder, name, source, f"[winnow.parsers]\n{name} = {name}:{parser}\n")
    return {"PYTHONPATH": str(folder)}
