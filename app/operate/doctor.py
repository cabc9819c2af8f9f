"""
`winnow doctor`: examines everything once, one part after the other, and reports what is wrong. Changes nothing.

A part that fails is a finding itself, and never hides the others. The archive has no secrets and no records.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from app.config import Loaded, exposed_secrets, options, secret_texts, shown
from app.cures import RESUME, SHOW_SAMPLES, CommandLine, KafkaTools
from app.driver.check import connected
from app.driver.clients import Clients
from app.driver.diagnostics import Severity
from app.errors import ConfigError, Unreachable, WinnowError
from app.facts import OpenTransaction
from app.model import CommittedOffset, Guarantee, Partition, Plugin, TaskConfig, Watermarks, partitions_of
from app.offsets.contract import StoreContext, is_local
from app.offsets.registry import open_store
from app.operate import outcomes, running, served, stores, symptoms
from app.operate.audit import Readers, Scope
from app.operate.judging import Verdict
from app.operate.lag import FirstRecords, PartitionLag, measure, notes, offsets_of, summed
from app.operate.ranges import Why
from app.operate.reading import Cleanse, Offsets, Reader
from app.operate.symptoms import GROUP, Gathered, Symptom, gathered
from app.secrets import without_secrets
from parsers.contract import Parse

NEWEST = 1_000
"""How many records of each partition are audited at most."""
CODES = {Severity.REFUSES: 3, Severity.WRONG: 1, Severity.UNKNOWN: 4, Severity.WARNS: 0}
"""The exit code by the worst finding."""
STATES = {"refuses": Severity.REFUSES, "blocked": Severity.WRONG, "waits": Severity.WRONG, "warns": Severity.WARNS}
"""The states of a preflight's errors."""

FOLDER, PRIVATE = "winnow-doctor", 0o600
"""The folder in the archive, and the mode of its files."""

Say = Callable[[Iterable[Symptom]], object]
Look = Callable[[Say], str]
"""Examines a part; returns what was seen, in a few words."""


class Instruments(NamedTuple):
    """
    What the doctor looks with: `first_records` reads the source's cluster, `first_lines` the sink's.

    `cleanse` does what tasks do, and `parse` parses the samples. `open_transactions` finds those that began after a
    time in milliseconds.
    """

    clients: Clients
    first_records: FirstRecords
    first_lines: FirstRecords
    source: Reader
    output: Reader
    open_transactions: Callable[[int], list[OpenTransaction]]
    cleanse: Callable[[TaskConfig], AbstractContextManager[Cleanse]]
    parse: Parse


class Examined(NamedTuple):
    """One part of the examination; `note` is empty if it could not be finished."""

    part: str
    note: str
    found: Sequence[Symptom]


class Examination(NamedTuple):
    """What the doctor found; `facts` has what the parts looked at, by name, for a bug report."""

    group: str
    parts: Sequence[Examined]
    facts: Mapping[str, Any] = {}

    @property
    def findings(self) -> list[Gathered]:
        return gathered(each for part in self.parts for each in part.found)

    @property
    def code(self) -> int:
        return next((CODES[each.severity] for each in self.findings), 0)

    def as_json(self) -> dict[str, Any]:
        parts = [{"part": part, "note": note or None, "findings": len(found)} for part, note, found in self.parts]
        findings = [each._asdict() for each in self.findings]
        return {"version": 1, "group": self.group, "findings": findings, "parts": parts}


class Doctor:
    """Examines a service, which answers at `url` or, if that is empty, perhaps where the configuration says."""

    def __init__(
        self, loaded: Loaded, instruments: Instruments, url: str = "", sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._loaded = loaded
        self._config = loaded.config
        self._with = instruments
        self._clients = instruments.clients
        self._url = url
        self._sleep = sleep
        self._seconds = self._clients.timings.signs_of_life(self._config.commit_interval)
        self._tools = KafkaTools.of(self._config.kafka)
        self._committed: Offsets | None = None
        """The offsets at the first look; None if there was none."""
        self._perhaps_open = self._config.delivery_guarantee is Guarantee.EXACTLY_ONCE
        """Whether a transaction of the group may be open."""
        self._service = ""
        """Where it is, and its phase; empty if its page has not answered."""
        self._facts: dict[str, Any] = {}

    @property
    def parts(self) -> Sequence[tuple[str, Look]]:
        in_transactions = self._config.delivery_guarantee is Guarantee.EXACTLY_ONCE
        return [
            ("lag", self._lag),
            ("configuration", self._configuration),
            ("preflight", self._preflight),
            ("status", self._status),
            *([("transactions", self._transactions)] if in_transactions else []),
            ("flow", self._flow),
            ("audit", self._audit),
            *((f"mirror {self._name(each)}", partial(self._mirror, each)) for each in self._config.mirrors),
        ]

    def examine(self, advance: Callable[[int], object] = lambda _: None) -> Examination:
        """Examine all parts; `advance` receives the number of each batch of parts that is done."""
        examined, line = [], CommandLine(options(self._loaded))
        for part, look in self.parts:
            found, note = list[Symptom](), ""
            try:
                note = look(found.extend)
            except WinnowError as error:
                found.append(Symptom(Severity.UNKNOWN, error.cause, part, error.cure))
            except Exception as error:  # noqa: BLE001  # not even a bug may hide the other parts
                found.append(Symptom(Severity.UNKNOWN, _bug(error), part, "report it, with the archive of --bundle"))
            examined.append(Examined(part, note, [each._replace(cure=line.exact(each.cure)) for each in found]))
            advance(1)
        return Examination(self._config.group_id, examined, self._facts)

    def _lag(self, say: Say) -> str:
        found = measure(self._config, self._clients, self._with.first_records, time.time())
        self._committed = _stored(found)
        self._facts["lag"] = [each.stored_as_json() | each.as_json() for each in found]
        say(symptoms.of_partitions(found, self._tools))
        topics = sorted({each.partition.topic for each in found})
        retention = {topic: self._clients.topics.retention(topic) for topic in topics}
        say(symptoms.of_retention(found, retention, self._tools))
        total = summed(found)
        lag = f"lag {total['lag']}, at most {total['max_lag_seconds']:.1f} s"
        return f"{len(found)} partitions, {lag}{notes(found)}"

    def _configuration(self, say: Say) -> str:
        if warning := exposed_secrets(self._loaded):
            say([Symptom(Severity.WARNS, warning, "the configuration", "")])
        tried = self._config.parser.samples
        if failed := len(outcomes.failed_samples(tried, self._with.parse)):
            what = f"{failed} of {len(tried)} samples have another outcome than expected"
            say([Symptom(Severity.WRONG, what, "parser.samples", SHOW_SAMPLES)])
        return f"{len(tried)} samples"

    def _preflight(self, say: Say) -> str:
        said = self._facts["check"] = []

        def note(state: str, what: str | WinnowError) -> None:
            said.append({"state": state, "what": str(what)})
            if isinstance(what, WinnowError):
                say([Symptom.of(STATES[state], what, "Kafka")])

        try:
            connected(self._config, self._clients, note)
        except Unreachable as error:
            say([Symptom.of(Severity.REFUSES, error, "Kafka")])
            return ""
        return f"{sum(each['state'] == 'ok' for each in said)} checks are ok"

    def _status(self, say: Say) -> str:
        url = self._url or served.address(self._config)
        if not url:
            return "the address of the service is not known: see --status"
        try:
            document = served.status(url, self._config.group_id)
        except WinnowError as error:
            if self._url:
                raise
            return error.cause  # the service may run on another machine
        self._facts["status"] = document
        say(symptoms.of_status(document, self._tools))
        self._service = f"the service at {url} is {document['phase']}"
        return f"the service is {document['phase']}"

    def _transactions(self, say: Say) -> str:
        found = running.open_transactions(self._config, self._with.open_transactions)
        self._perhaps_open = bool(found)
        say(symptoms.of_transactions(found, self._config.transaction_timeout, time.time()))
        return f"{len(found)} open"

    def _flow(self, say: Say) -> str:
        before, outputs = offsets_of(self._config, self._clients), self._outputs()
        pause = self._clients.pauses.read()
        self._sleep(self._seconds)
        if pause is not None:
            say([Symptom(Severity.WARNS, str(pause), GROUP, f"to resume, run {RESUME}")])
        elif not is_local(self._clients.offsets):
            say(symptoms.of_flow(before, offsets_of(self._config, self._clients), self._seconds, self._service))
        now, tools = self._outputs(), KafkaTools.of(self._config.output_kafka)
        say(symptoms.of_readers(outputs, now, self._seconds, tools, perhaps_ours=self._perhaps_open))
        return f"watched for {self._seconds:g} s"

    def _outputs(self) -> Mapping[Partition, Watermarks]:
        names = (self._config.sink.topic, self._config.dead_letters.topic)
        topics = self._clients.destinations.source_topics(names, None, ())
        led = [each for each in partitions_of(topics.values()) if each.number not in topics[each.topic].leaderless]
        return self._clients.destinations.watermarks(led)

    def _audit(self, say: Say) -> str:
        scope = Scope.newest(self._config, self._clients, self._with.first_lines, NEWEST)
        if not scope.judged:
            return "no committed record is recent enough"
        readers = Readers(self._with.source, self._with.output, self._clients.topics, self._clients.destinations)
        with self._with.cleanse(scope.tasks) as cleanse:
            verdicts = scope.audit(cleanse, readers)
        findings = [each for verdict in verdicts for each in verdict.findings]
        say(symptoms.of_audit(findings, self._config.delivery_guarantee, scope.since))
        return _audited(verdicts)

    def _mirror(self, mirror: Plugin, say: Say) -> str:
        if self._committed is None:  # each mirror should have these offsets after a moment
            self._committed = _stored(offsets_of(self._config, self._clients))
            self._sleep(self._seconds)
        before = self._committed
        with closing(open_store(mirror, StoreContext(self._config.group_id, self._config.kafka))) as opened:
            found = opened.load(before, stable=False)
        after = self._clients.offsets.load(before, stable=False)
        say(symptoms.of_mirror(self._config.offsets.store.name, self._name(mirror), found, before, after))
        return f"{len(found)} offsets"

    def _name(self, mirror: Plugin) -> str:
        """Return a mirror's name for `winnow offsets migrate`."""
        return stores.SOURCE if mirror.name == "kafka" and self._config.sink.kafka else mirror.name


def _stored(found: Iterable[PartitionLag]) -> dict[Partition, CommittedOffset]:
    return {each.partition: each.committed for each in found if each.committed is not None}


def _audited(verdicts: Sequence[Verdict]) -> str:
    judged = sum(each.judged for each in verdicts)
    counts = {why: sum(each.not_judged[why] for each in verdicts) for why in Why}
    not_judged = ", ".join(f"{count} {why}" for why, count in counts.items() if count)
    return f"{judged} of the newest records" + (f"; not judged: {not_judged}" if not_judged else "")


def _bug(error: Exception) -> str:
    """Say where an unexpected error came from, without its text, which may quote a record."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"an unexpected {type(error).__name__} in {Path(last.filename).name}:{last.lineno}"


def write_bundle(file: Path, loaded: Loaded, report: Examination, versions: Mapping[str, str]) -> None:
    """Write the archive, readable by its owner only. Raises ConfigError if the file cannot be written."""
    try:
        opened = os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE), "wb")
        with opened, tarfile.open(fileobj=opened, mode="w:gz") as archive:
            os.fchmod(opened.fileno(), PRIVATE)  # an older file has a mode of its own
            for name, text in _contents(loaded, report, versions):
                content = text.encode()
                entry = tarfile.TarInfo(f"{FOLDER}/{name}")
                entry.size, entry.mtime, entry.mode = len(content), int(time.time()), PRIVATE
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise ConfigError((f"--bundle: {file}: {error.strerror}",)) from None


def _contents(loaded: Loaded, report: Examination, versions: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each file's name and text: the configuration, the report, the versions, and the facts of the parts."""
    config, secrets = loaded.config, secret_texts(loaded.config)
    parser = config.parser.model_copy(update={"samples": ()})  # they may be real records
    cleared = replace(loaded, config=config.model_copy(update={"parser": parser}))
    yield "configuration.yaml", without_secrets(shown(cleared), secrets)
    for name, value in {"report": report.as_json(), "versions": versions, **report.facts}.items():
        yield f"{name}.json", json.dumps(_without(value, secrets), indent=1, ensure_ascii=False)


def _without(value: Any, secrets: list[str]) -> Any:  # noqa: ANN401  # JSON
    """Mask secrets in every text of a document; in its JSON text, an escaped one would not be found."""
    match value:
        case str():
            return without_secrets(value, secrets)
        case Mapping():
            return {key: _without(each, secrets) for key, each in value.items()}
        case list() | tuple():
            return [_without(each, secrets) for each in value]
    return value
