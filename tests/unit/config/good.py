"""A minimal valid configuration, and a helper that lists the problems of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config import load
from app.errors import ConfigError

TEXT = """\
group.id: idc-cleansing
source:
  topics: [raw-logs]
  format: raw
sink:
  topic: clean-logs
dead.letters:
  topic: raw-logs.dlq
kafka:
  bootstrap.servers: localhost:9092
"""
GOOD: dict[str, Any] = yaml.safe_load(TEXT)


def problems(file: Path | None, *assignments: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, assignments, environ)
    return list(caught.value.problems)
