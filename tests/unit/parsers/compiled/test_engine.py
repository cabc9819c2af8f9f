"""The engine of a parser."""

from __future__ import annotations

import subprocess
import sys

import pytest

from parsers.compiled import engine
from parsers.compiled.engine import choose
from parsers.errors import ParserOptionError
from parsers.idc_access_log import IdcAccessLog


def test_a_parser_names_its_engine() -> None:
    """If Numba is installed, `auto` is the compiled engine."""
    assert ["compiled", "compiled", "plain"] == [
        IdcAccessLog().engine,
        IdcAccessLog(engine="compiled").engine,
        IdcAccessLog(engine="plain").engine,
    ]


NO_NUMBA = """
import sys
sys.modules["numba"] = None
from parsers.idc_access_log import IdcAccessLog
from parsers.flume.envelope import wrap
from parsers.testing import batch
parser = IdcAccessLog()
print(parser.engine, wrap(parser, "auto").engine, len(parser.parse(batch([b"x"])).reject_rows))
try:
    IdcAccessLog(engine="compiled")
except ValueError as error:
    print(error)
"""


def test_without_numba_the_plain_engine_works() -> None:
    """Without Numba parsers are plain, and the error for `compiled` names the package to install."""
    output = subprocess.run([sys.executable, "-c", NO_NUMBA], capture_output=True, text=True, check=True).stdout

    assert output.startswith("plain plain 1\n")
    assert "install numba" in output


def test_kernels_that_do_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Numba may refuse them with an error of its own that is not an ImportError."""

    def refuse(name: str) -> object:
        raise TypeError(name)

    monkeypatch.setattr(engine, "import_module", refuse)
    engine._why_not_compiled.cache_clear()

    assert "plain" == choose("auto")
    engine._why_not_compiled.cache_clear()


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ParserOptionError, match="not 'jit'"):
        choose("jit")


COMPILED = """
import sys
from parsers.flume.envelope import wrap
from parsers.idc_access_log import IdcAccessLog
wrap(IdcAccessLog(engine="compiled"), "flume-avro", engine="compiled")
print(sorted({"fastavro", "numba"} & {*sys.modules}))
"""


def test_the_compiled_engine_loads_no_fastavro() -> None:
    """With the compiled engine a worker does not load the library that only the plain one needs."""
    output = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=True).stdout

    assert output == "['numba']\n"
