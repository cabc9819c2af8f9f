"""`winnow audit`: compares a range of the source with the sink and the dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import click

from app.cli.layout import View
from app.cli.options import PERCENT, Period, clients, configured, ranged, shown
from app.cli.tables import steps
from app.config import Config
from app.operate.audit import Readers, Scope
from app.operate.findings import counted
from app.operate.judging import Verdict
from app.operate.ranges import CURES, LeftOut, Why

SHOWN = 100
"""How many findings the table shows; JSON has all of them."""
NAMED = 5
"""How many partitions the last line names for each reason; JSON has all of them."""
NOT_JUDGED = 4
"""The exit code if nothing is wrong but not everything could be judged."""


@click.command(epilog="Example: winnow audit --last 2h")
@configured
@ranged
@click.option("--sample", type=PERCENT, metavar="PERCENT", help="Audit only a random sample.")
@shown
def audit(settings: Config, *, times: Period, sample: float | None) -> View:
    """
    Verify the sink and the dead letters against the source.

    Cleanses a range of the source again and compares the result with what was written. Changes nothing; the service may
    be running. Exits with 1 if something is wrong, and with 4 if nothing is wrong but not everything could be judged.
    """
    if times.since is None:
        raise click.UsageError("give either --since (and perhaps --until) or --last")
    from app.start import fates, records

    kafka = clients(settings)
    scope = Scope.of(settings, kafka, max(0, times.since), times.until, sample)
    source, output = (records(cluster, settings.group_id) for cluster in (settings.kafka, settings.output_kafka))
    readers = Readers(source, output, kafka.topics, kafka.destinations)
    with fates(scope.tasks) as cleanse, steps() as step:
        verdicts = scope.audit(cleanse, readers, step)
    return _view(settings.group_id, scope, verdicts, sample)


def _view(group: str, scope: Scope, verdicts: Sequence[Verdict], sample: float | None) -> View:
    records, by_text = sum(each.judged for each in verdicts), sum(each.known_by_text for each in verdicts)
    filtered = sum(each.filtered for each in verdicts)
    findings = [each for found in verdicts for each in found.findings]
    counts = counted(findings)
    not_judged = sum((each.not_judged for each in verdicts), Counter[Why]())
    for each in scope.left_out:
        not_judged[each.why] += each.offsets or 0
    why_left_out = {each.why for each in scope.left_out}
    why_not = [_said_of(why, not_judged[why], scope.left_out) for why in Why if not_judged[why] or why in why_left_out]
    notes = [
        (True, f"group {group}: {_said(records, counts, why_not)}"),
        (why_not, f"not judged: {', '.join(why_not)}"),
        (
            by_text,
            f"{by_text} lines have neither a header nor their record's timestamp, so only their text was compared",
        ),
        (filtered, f"filters dropped {filtered} of them on purpose"),
        (sample, f"a sample of {sample} % cannot find unexplained lines"),
        (len(findings) > SHOWN, f"the table shows the first {SHOWN}"),
    ]
    return View(
        columns=("WHAT", "TOPIC", "#PARTITION", "#OFFSET", "?FOUND-AT", "?DETAIL"),
        rows=[tuple(each.as_json().values()) for each in findings[:SHOWN]],
        value={
            "version": 1,
            "group": group,
            "records": records,
            "filtered": filtered,
            "sample": sample,
            "known_by_text": by_text,
            **counts,
            "not_judged": {why.replace(" ", "_"): not_judged[why] for why in Why},
            "findings": [each.as_json() for each in findings],
            "left_out": [each.as_json() for each in scope.left_out],
            "audited": [
                each.as_json() | {"begin": begin, "end": end}
                for each, found in sorted(scope.judged.items())
                for begin, end in found.judged
                if begin < end
            ],
        },
        code=1 if findings else NOT_JUDGED if why_not else 0,
        footer="; ".join(note for is_so, note in notes if is_so),
    )


def _said(records: int, counts: Mapping[str, int], why_not: Sequence[str]) -> str:
    wrong = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count)
    if not records:
        return wrong or ("nothing was judged" if why_not else "there was no record to judge")
    return f"{records} records audited: {wrong or ('no fault found in these' if why_not else 'all correct')}"


def _said_of(why: Why, count: int, left_out: Sequence[LeftOut]) -> str:
    places = [str(each.partition) for each in left_out if each.why is why]
    where = f" in {', '.join(places[:NAMED])}{' and others' if len(places) > NAMED else ''}" if places else ""
    return f"{count or 'an unknown number'} {why}{where}" + (f" ({CURES[why]})" if why in CURES else "")
