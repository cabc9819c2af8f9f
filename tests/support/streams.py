"""
The unit of work of one test stream: a test module, or a folder whose modules share servers.

Such a folder is a package. Its servers start with its first test and end with its last one.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from xdist.scheduler.loadscope import LoadScopeScheduling

ROOT = Path(__file__).parents[2]


class Streams(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types here
    """Gives each stream the next module or folder."""

    def _split_scope(self, nodeid: str) -> str:
        module = PurePosixPath(nodeid.partition("::")[0])
        shares = (ROOT / module.parent / "__init__.py").exists()
        return str(module.parent if shares else module)
