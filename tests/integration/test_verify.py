"""The verification finds every kind of damage. Each case plants one by hand, and one plants none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from app.demo.background import BackgroundVerification
from app.demo.lines import Recipe
from app.demo.verify import Verification, VerificationFailed, VerificationResult
from app.embedded.broker import Broker, Cluster
from tests.conftest import QUICK_JAVA, Topics
from tests.support.waiting import PATIENCE

RECIPE = Recipe(partitions=3, count=3_000, bad=0.1)
SINK_PARTITIONS = 2
SOURCE = "raw"
LONG = {"transaction.timeout.ms": 600_000}
"""So that the broker ends no transaction by itself."""


class Planted(NamedTuple):
    """A record that a service might have written. Its role names the topic."""

    role: str
    partition: int
    key: bytes
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, str | bytes | None]]


Records = list[Planted]
Damage = Callable[[Records], None]


def planted() -> Records:
    """Return what a faultless service writes."""
    return [record for partition in range(RECIPE.partitions) for record in planted_from(partition)]


def planted_from(partition: int) -> Iterator[Planted]:
    """Return what a faultless service writes for one source partition."""
    for sequence, (key, value, timestamp, expected, reason) in enumerate(RECIPE.lines(partition)):
        if reason is None:
            yield Planted("sink", partition % SINK_PARTITIONS, key, expected, timestamp, [])
        else:
            yield Planted("dead", 0, key, value, timestamp, headers(partition, sequence, reason))


def headers(partition: int, sequence: int, reason: str) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of a dead letter."""
    fields = {"topic": SOURCE, "partition": partition, "offset": sequence, "exception.class.name": reason}
    fields["exception.message"] = "the line is not as it should be"
    return [(f"__connect.errors.{name}", str(value).encode()) for name, value in fields.items()]


def of(records: Records, role: str) -> list[int]:
    """Return the indices of the records of a topic."""
    return [at for at, record in enumerate(records) if record.role == role]


def tombstone(records: Records) -> int:
    """Return the index of the first tombstone among the dead letters."""
    return next(at for at in of(records, "dead") if records[at].value is None)


def lose(records: Records, role: str = "sink") -> None:
    """Leave out one record."""
    del records[of(records, role)[7]]


def duplicate_at_once(records: Records) -> None:
    """Write one record twice in a row."""
    at = of(records, "sink")[7]
    records.insert(at, records[at])


def duplicate_later(records: Records) -> None:
    """Write one record again at the very end, as a restart from an old offset would."""
    records.append(records[of(records, "sink")[7]])


def swap(records: Records, role: str = "sink") -> None:
    """Exchange two neighbours of one source partition."""
    one, other = of(records, role)[7:9]
    records[one], records[other] = records[other], records[one]


def change(role: str, **fields: Any) -> Damage:
    """Return a function that damages fields of one record."""

    def damage(records: Records) -> None:
        at = of(records, role)[7]
        records[at] = records[at]._replace(**fields)

    return damage


def empty_tombstone(records: Records) -> None:
    """Write the dead letter of a tombstone with an empty value instead of null."""
    at = tombstone(records)
    records[at] = records[at]._replace(value=b"")


def bury_a_good_one(records: Records) -> None:
    """Send a valid line to the dead letters."""
    at = of(records, "sink")[7]
    reason = headers(0, int(records[at].key[2:]), "url")
    records[at] = records[at]._replace(role="dead", partition=0, headers=reason)


def pass_a_bad_one(records: Records) -> None:
    """Send an invalid line to the sink."""
    at = of(records, "dead")[7]
    records[at] = records[at]._replace(role="sink", partition=int(records[at].key[:1]) % SINK_PARTITIONS)


def forget_the_message(records: Records) -> None:
    """Leave out the message header of a dead letter."""
    at = of(records, "dead")[7]
    records[at].headers.pop()


DAMAGES: dict[str, tuple[Damage, dict[str, int]]] = {
    "nothing": (lambda records: None, {}),
    "a lost line": (lose, {"lost": 1}),
    "a lost dead letter": (lambda records: lose(records, "dead"), {"lost": 1}),
    "a line twice in a row": (duplicate_at_once, {"doubled": 1}),
    "a line again later": (duplicate_later, {"doubled": 1}),
    "two lines swapped": (swap, {"out_of_order": 1}),
    "two dead letters swapped": (lambda records: swap(records, "dead"), {"out_of_order": 1}),
    "another value": (change("sink", value=b"238|20171112132902|1.2.3.4:5|6.7.8.9:10|"), {"wrong_value": 1}),
    "a line without a value": (change("sink", value=None), {"wrong_value": 1}),
    "another dead value": (change("dead", value=b"x"), {"wrong_value": 1}),
    "an empty value for a tombstone": (empty_tombstone, {"wrong_value": 1}),
    "another timestamp": (change("sink", timestamp=1_700_000_000_000), {"wrong_timestamp": 1}),
    "another partition": (change("sink", partition=1), {"wrong_partition": 1}),
    "an unknown key": (change("sink", key=b"9:000000001"), {"foreign": 1, "lost": 1}),
    "a key beyond the end": (change("sink", key=b"0:000001000"), {"foreign": 1, "lost": 1}),
    "no key": (change("sink", key=None), {"foreign": 1, "lost": 1}),
    "a good line among the dead": (bury_a_good_one, {"wrong_topic": 1, "wrong_header": 1}),
    "a bad line in the sink": (pass_a_bad_one, {"wrong_topic": 1}),
    "headers of another record": (change("dead", headers=headers(0, 0, "srcip")), {"wrong_header": 1}),
    "no headers": (change("dead", headers=[]), {"wrong_header": 1}),
    "no message": (forget_the_message, {"wrong_header": 1}),
}


class Outputs:
    """A pair of topics, and a transactional producer in the role of the service."""

    def __init__(self, broker: Cluster, topics: Topics) -> None:
        """Create the topics."""
        self.bootstrap = broker.bootstrap
        self.names = {"sink": topics("sink", SINK_PARTITIONS), "dead": topics("dead", 1)}
        self.producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self.names["sink"], "log_level": 0} | LONG
        )
        self.producer.init_transactions(PATIENCE)

    def write(self, records: Records) -> None:
        """Produce records in a transaction that stays open."""
        self.producer.begin_transaction()
        for role, partition, key, value, timestamp, each in records:
            self.producer.produce(self.names[role], value, key, partition, timestamp=timestamp, headers=each)
        assert self.producer.flush(PATIENCE) == 0

    def verification(self) -> Verification:
        """Return a verification of the two topics."""
        return Verification(
            self.bootstrap, RECIPE, source=SOURCE, sink=self.names["sink"], dead_letters=self.names["dead"]
        )

    def result(self, timeout: float = PATIENCE) -> VerificationResult:
        """Return the result of a verification that starts now."""
        with self.verification() as verification:
            return verification.finish(timeout)


@pytest.fixture
def outputs(broker: Cluster, topics: Topics) -> Outputs:
    """Return empty topics."""
    return Outputs(broker, topics)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(outputs: Outputs, name: str) -> None:
    """The result names exactly the planted damage."""
    damage, faults = DAMAGES[name]
    records = planted()
    damage(records)
    outputs.write(records)
    outputs.producer.commit_transaction(PATIENCE)

    result = outputs.result()

    assert faults == result.faults


def test_counts(outputs: Outputs) -> None:
    """The result counts the lines, the dead letters, and these by reason."""
    outputs.write(planted())
    outputs.producer.commit_transaction(PATIENCE)

    result = outputs.result()

    reasons = [line.reason for partition in range(3) for line in RECIPE.lines(partition) if line.reason]
    assert (3_000 - len(reasons), len(reasons)) == (result.out, result.dead)
    assert {reason: reasons.count(reason) for reason in reasons} == result.dead_by_reason


def test_reads_while_the_service_writes(outputs: Outputs) -> None:
    """A verification that polls between two transactions counts the committed records and ends correctly."""
    records = planted()
    with outputs.verification() as verification:
        outputs.write(records[:1_000])
        outputs.producer.commit_transaction(PATIENCE)
        while verification.result().faults["lost"] > 2_000:
            verification.poll()
        outputs.write(records[1_000:])
        outputs.producer.commit_transaction(PATIENCE)

        assert {} == verification.finish(PATIENCE).faults


def test_reads_in_the_background(outputs: Outputs) -> None:
    """A separate process counts the records and sends its result once the caller reports that all are written."""
    records = planted()
    sink, dead = outputs.names["sink"], outputs.names["dead"]
    start = partial(Verification, outputs.bootstrap, RECIPE, source=SOURCE, sink=sink, dead_letters=dead)
    # With the usual priority: the lowest one gets no time beside enough other tests.
    with BackgroundVerification(start, niceness=0) as verification:
        outputs.write(records[:1_000])
        outputs.producer.commit_transaction(PATIENCE)
        while verification.latest(0.1).faults.get("lost") != 2_000:
            pass
        outputs.write(records[1_000:])
        outputs.producer.commit_transaction(PATIENCE)
        verification.finish()
        while not verification.done:
            verification.latest(0.1)

        assert {} == verification.latest().faults


def test_a_failed_background_process_is_reported(broker: Cluster, topics: Topics) -> None:
    """If the process ends without a result, waiting for one raises an error."""
    start = partial(Verification, broker.bootstrap, RECIPE, source=SOURCE, sink="nowhere", dead_letters=topics("dead"))
    with (
        BackgroundVerification(start, niceness=0) as verification,
        pytest.raises(VerificationFailed, match="ended before"),
    ):
        verification.latest(PATIENCE)


def test_survives_a_restart() -> None:
    """A verification continues after its broker was killed and restarted."""
    with Broker(java=QUICK_JAVA) as broker:
        sink, dead = broker.create_topic("sink", SINK_PARTITIONS), broker.create_topic("dead")
        with Verification(broker.bootstrap, RECIPE, source=SOURCE, sink=sink, dead_letters=dead) as verification:
            verification.poll()
            broker.kill()
            verification.poll(1)
            broker.start()
            producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "enable.idempotence": True})
            for role, partition, key, value, timestamp, each in planted():
                producer.produce(role, value, key, partition, timestamp=timestamp, headers=each)
            assert producer.flush(PATIENCE) == 0

            assert {} == verification.finish(PATIENCE).faults


def test_aborted_records_count_as_lost(outputs: Outputs) -> None:
    """Records of an aborted transaction count as lost."""
    records = planted()
    outputs.write(records)
    outputs.producer.abort_transaction(PATIENCE)
    outputs.write(records[10:])
    outputs.producer.commit_transaction(PATIENCE)

    assert {"lost": 10} == outputs.result().faults


def test_an_open_transaction_is_reported(outputs: Outputs) -> None:
    """If a transaction was left open, the result counts the records that readers cannot reach."""
    outputs.write(planted())

    result = outputs.result(timeout=1)

    assert {"lost": 3_000, "held_back": 3_000} == result.faults


def test_missing_topic_is_named(broker: Cluster, topics: Topics) -> None:
    """If a topic does not exist, the error names it."""
    with pytest.raises(VerificationFailed, match="nowhere"):
        Verification(broker.bootstrap, RECIPE, source=SOURCE, sink="nowhere", dead_letters=topics("dead"))
