"""The Prometheus rules and the Grafana dashboard use only what /metrics provides."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.driver.discover import BLOCKED_SECONDS
from app.status.condition import Condition
from app.status.metrics import CONDITIONS, STATES
from app.status.snapshot import PartitionState
from tests.deploy.conftest import ROOT
from tests.prometheus import needs_promtool, promtool, scraped
from tests.support.docs import anchors
from tests.support.reference import all_metrics
from tests.unit.status.snapshots import SNAPSHOT

RULES: list[dict[str, Any]] = yaml.safe_load((ROOT / "docker/alerts.yaml").read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "docker/dashboard.json").read_text())
METRICS = {name: set(labels.replace(",", "").split()) for name, labels, _ in all_metrics()}
COMMON_LABELS = {"group", "job", "instance", "namespace", "le"}
"""The label of each metric, and those that Prometheus adds to series and histograms."""


def names(text: str) -> set[str]:
    return {re.sub("_bucket$", "", name) for name in re.findall(r"\b(?:winnow|kafka)_\w+", text)}


def of_rules() -> Iterator[str]:
    yield from (rule["expr"] for rule in RULES)


def of_panels() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


@pytest.mark.parametrize("expression", sorted({*of_rules(), *of_panels()}))
def test_every_metric_that_is_asked_for_exists(expression: str) -> None:
    """Every metric and label in a rule or panel exists. Otherwise the rule would stay silent forever."""
    asked = names(expression)
    grouped = re.findall(r"(?:by|without) \(([^)]*)\)", expression)
    chosen = [inner for braces in re.findall(r"{([^}]*)}", expression) for inner in re.findall(r"(\w+)=", braces)]
    labels = {label for each in grouped for label in each.split(", ")} | set(chosen)

    assert asked <= METRICS.keys()
    assert labels <= COMMON_LABELS.union(*(METRICS[name] for name in asked))
    if "_total" in expression and "in_total -" not in expression:
        assert re.search(r"(?:rate|increase)\(", expression)


def test_a_blocked_partition_waits_for_its_alert() -> None:
    """If each attempt follows so soon that the alert never sees the state for long enough, nobody is called."""
    (blocked,) = (rule for rule in RULES if rule["alert"] == "WinnowPartitionBlocked")

    assert "1m" == blocked["for"]
    assert BLOCKED_SECONDS >= 2 * 60  # and the default of a minute between two scrapes


def test_the_rules_cover_what_can_go_wrong() -> None:
    """Each rule has a severity, a summary and a description, and together they cover the important faults."""
    alerts = {rule["alert"]: rule for rule in RULES}

    assert len(alerts) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert {
        "WinnowNoHeartbeat",
        "WinnowNoProgress",
        "WinnowFallingBehind",
        "WinnowRetentionNear",
        "WinnowRecordsLost",
        "WinnowDeadLetters",
        "WinnowAccountingMismatch",
        "WinnowPartitionBlocked",
    } <= alerts.keys()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_alert_links_to_a_section_of_the_runbook(rule: dict[str, Any]) -> None:
    """A person on call who gets it must not search."""
    page, _, section = rule["annotations"]["runbook_url"].partition("#")

    assert page == "docs/runbook.md"
    assert section in anchors((ROOT / page).read_text())


def test_the_codes_of_the_rules_are_those_of_the_metrics() -> None:
    """A number that a rule compares with is the code of the state that the rule names."""
    expressions = {rule["alert"]: rule["expr"] for rule in RULES}

    assert expressions["WinnowPartitionBlocked"] == f"winnow_partition_state == {STATES[PartitionState.BLOCKED]}"
    assert expressions["WinnowNoProgress"] == f"winnow_partition_condition == {CONDITIONS[Condition.STALLED]}"
    assert expressions["WinnowFallingBehind"] == f"winnow_partition_condition == {CONDITIONS[Condition.FALLING_BEHIND]}"
    written = (ROOT / "docker/alerts.yaml").read_text()
    for codes in (STATES, CONDITIONS):
        assert f": {', '.join(f'{code} {name}' for name, code in codes.items())}." in written


def test_the_dashboard_has_a_word_for_each_condition() -> None:
    """Panels do not overlap, and the dashboard has a label for each condition."""
    mapped = [panel["fieldConfig"]["defaults"]["mappings"] for panel in DASHBOARD["panels"] if "mappings" in str(panel)]
    places = [tuple(panel["gridPos"].values()) for panel in DASHBOARD["panels"]]
    taken = [(x + column, y + row) for x, y, w, h in places for column in range(w) for row in range(h)]

    assert len(taken) == len(set(taken))
    assert mapped
    for (mapping,) in mapped:
        words = {int(code): each["text"] for code, each in mapping["options"].items()}
        assert {code: name.value for name, code in CONDITIONS.items()} == words


def shows(folder: Path, series: list[dict[str, str]], panels: Mapping[str, float]) -> None:
    """Check what these panels show of the series in total."""
    expected = [
        {
            "expr": f"sum({re.sub('[$](job|topic)', '.+', panel)})",
            "eval_time": "0s",
            "exp_samples": [{"labels": "{}", "value": value}],
        }
        for panel, value in panels.items()
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": expected}
    (folder / "test.yaml").write_text(yaml.safe_dump({"tests": [test]}))
    promtool("test", "rules", str(folder / "test.yaml"))


@needs_promtool
def test_what_two_services_say_of_a_partition_counts_once(tmp_path: Path) -> None:
    """In a take-over, or with one that stands by, both see the same lag; only the one that works judges it."""
    seen = {  # by the one that works, and by the one that stands by
        "winnow_lag_offsets": (5, 5),
        "winnow_lag_seconds": (9, 9),
        "winnow_retention_margin_seconds": (60, 60),
        "winnow_open_transaction_age_seconds": (3, 3),
        "winnow_partition_condition": (CONDITIONS[Condition.STALLED], CONDITIONS[Condition.WAITING]),
    }
    of = [f'job="winnow", group="g", instance="{name}"' for name in "ab"]
    series = [{"series": f"winnow_standing_by{{{at}}}", "values": str(code)} for code, at in enumerate(of)]
    for name, values in seen.items():
        for at, value in zip(of, values, strict=True):
            series.append({"series": f'{name}{{{at}, topic="raw", partition="0"}}', "values": str(value)})
    asked = [each for each in of_panels() if names(each) & seen.keys() and "label_values" not in each]

    shows(tmp_path, series, {each: values[0] for each in asked for name, values in seen.items() if name in each})
    assert len(seen) < len(asked)


@needs_promtool
def test_the_worst_partition_is_the_one_to_act_on(tmp_path: Path) -> None:
    """Their codes are not in the order of how bad they are: `paused` of one group must not hide `blocked` of another."""
    (worst,) = (each for each in of_panels() if each.startswith("max(") and "winnow_partition_condition" in each)
    for conditions, shown in (((4, 5), 4), ((3, 7), 3), ((2, 4), 4), ((0, 5), 5), ((0, 1), 1)):
        at = [f'job="winnow", instance="{name}", topic="raw"' for name in "ab"]
        names = [f"winnow_partition_condition{{{each}}}" for each in at]
        series = [{"series": each, "values": str(code)} for each, code in zip(names, conditions, strict=True)]

        shows(tmp_path, series, {worst: shown})


@needs_promtool
@pytest.mark.parametrize(("group", "namespace"), [("other", "default"), ("idc", "staging")])
def test_two_services_of_one_topic_are_two(group: str, namespace: str, tmp_path: Path) -> None:
    """One job may scrape two groups, which their own label tells apart, or one group in two namespaces."""
    panels = {each: name for each in of_panels() if "topic, partition)" in each for name in names(each)}
    series = [
        *scraped(SNAPSHOT, panels.values(), {"job": "pods", "namespace": "default"}),
        *scraped(replace(SNAPSHOT, group=group), panels.values(), {"job": "pods", "namespace": namespace}),
    ]
    total = {
        name: sum(float(each["values"].removesuffix("x40")) for each in series if each["series"].startswith(name + "{"))
        for name in panels.values()
    }

    shows(tmp_path, series, {each: total[name] for each, name in panels.items()})
    assert all(total.values())


@needs_promtool
@pytest.mark.parametrize("arguments", ["check rules docker/alerts.yaml", "test rules tests/deploy/alerts_test.yaml"])
def test_the_rules_are_right(arguments: str) -> None:
    """Each rule fires when it should, once per partition, with the expected text, and not otherwise."""
    promtool(*arguments.split())


def test_every_rule_has_a_unit_test() -> None:
    """Every rule has a unit test."""
    tested = (ROOT / "tests/deploy/alerts_test.yaml").read_text()

    assert {rule["alert"] for rule in RULES} == set(re.findall(r"alertname: (\w+)", tested))
