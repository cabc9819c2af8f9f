"""The status page as a probe, a person or Prometheus reads it."""

from __future__ import annotations

import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import PATIENCE


def ask(url: str) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics(url: str) -> dict[tuple[str, ...], float]:
    """Scrape. A key is the metric's name and its label values, sorted by label, but the group, which each has."""
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels.keys() - {"group"}))): sample.value
        for family in text_string_to_metric_families(ask(f"{url}metrics")[1])
        for sample in family.samples
    }


def is_ready(url: str) -> bool:
    """Return whether the service of this page works on its source."""
    try:
        return ask(f"{url}readyz")[0] == 200
    except OSError:
        return False
