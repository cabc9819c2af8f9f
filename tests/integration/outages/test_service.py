"""The service waits for an unavailable Kafka, recovers by itself, and logs the outage."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from app.embedded.broker import Broker
from app.model import Guarantee
from tests import independent
from tests.independent import Feeder, Written, by_partition, cleansed, held, line, produce, read, sequence, values
from tests.integration.service import Winnow, settings
from tests.integration.status_page import ask, metrics
from tests.support.waiting import until

PARTITIONS = 4


def create(broker: Broker, name: str) -> dict[str, object]:
    """Create topics and return a configuration for them."""
    for role in ("raw", "clean", "dead"):
        broker.create_topic(f"{name}.{role}", PARTITIONS)
    return settings(broker.bootstrap, group=name, sources=[f"{name}.raw"], sink=f"{name}.clean", dead=f"{name}.dead")


def test_a_broker_that_starts_later(mortal: Broker, tmp_path: Path) -> None:
    """A service that starts before Kafka logs once that it is waiting, and works as soon as Kafka is up."""
    config = create(mortal, "later")
    produce(mortal.bootstrap, "later.raw", [Written(line(n)) for n in range(100)])
    mortal.stop()

    with Winnow(config, tmp_path, "--until-end") as service:
        service.wait_for("kafka_unavailable")
        mortal.start()
        service.wait_for("kafka_available")
        code = service.code()

    assert 0 == code
    before = takewhile(lambda each: each["event"] != "kafka_available", service.events)
    assert 1 == sum(each["event"] == "kafka_unavailable" and "waited_seconds" not in each for each in before)
    assert [cleansed(n) for n in range(100)] == values(read(mortal.bootstrap, "later.clean"))


def test_a_stop_while_waiting(mortal: Broker, tmp_path: Path) -> None:
    """A service that waits for Kafka exits with 0 after SIGTERM."""
    config = create(mortal, "waiting")
    config["kafka"] = {"bootstrap.servers": "127.0.0.1:1"}

    with Winnow(config, tmp_path) as service:
        service.wait_for("kafka_unavailable")

        assert 0 == service.stop()


def test_a_stop_when_kafka_is_lost(mortal: Broker, tmp_path: Path) -> None:
    """With 64 partitions open and the only broker killed, the service exits with 0 as soon as with few."""
    for role, partitions in (("raw", 64), ("clean", 64), ("dead", 1)):
        mortal.create_topic(f"lost.{role}", partitions)
    config = settings(mortal.bootstrap, group="lost", sources=["lost.raw"], sink="lost.clean", dead="lost.dead")
    lines = [Written(line(n), None, n) for n in range(64)]
    produce(mortal.bootstrap, "lost.raw", lines)

    with Winnow(config, tmp_path) as service:
        until(lambda: len(read(mortal.bootstrap, "lost.clean")) == len(lines), "a flow")
        mortal.kill()
        code = service.stop()
        leftovers = service.leftovers()
    mortal.start()

    assert 0 == code
    assert not leftovers


def test_a_broker_that_is_killed(mortal: Broker, tmp_path: Path) -> None:
    """Under load, a killed and restarted broker costs no records; exactly once, it duplicates none."""
    names = {guarantee: f"killed-{guarantee.value}" for guarantee in Guarantee}
    configs = {each: create(mortal, name) | {"delivery.guarantee": each.value} for each, name in names.items()}

    def cleansed_by(guarantee: Guarantee) -> dict[int, list[bytes | None]]:
        return by_partition(read(mortal.bootstrap, f"{names[guarantee]}.clean"))

    def flows(guarantee: Guarantee, beyond: int) -> bool:
        return sum(map(len, cleansed_by(guarantee).values())) > beyond + 500

    with contextlib.ExitStack() as stack:  # side by side, because both wait for the same broker
        feeders = [stack.enter_context(Feeder(mortal.bootstrap, f"{name}.raw", PARTITIONS)) for name in names.values()]
        services = [stack.enter_context(Winnow(config, tmp_path)) for config in configs.values()]
        until(lambda: all(flows(each, 0) for each in names), "a flow")
        mortal.kill()
        mortal.start()
        seen = {each: sum(map(len, cleansed_by(each).values())) for each in names}
        until(lambda: all(flows(each, seen[each]) for each in names), "a new flow")
        for feeder in feeders:
            feeder.stop()
        until(lambda: all(lag(mortal, name) == 0 for name in names.values()), "the end")
        codes = [service.stop() for service in services]

    assert [0, 0] == codes
    written = {each: sequence(feeder.written) for each, feeder in zip(names, feeders, strict=True)}
    exactly_once = held(mortal.bootstrap, f"{names[Guarantee.EXACTLY_ONCE]}.raw")
    assert exactly_once == cleansed_by(Guarantee.EXACTLY_ONCE)
    assert {each: distinct(lines) for each, lines in written.items()} == {
        each: distinct(cleansed_by(each)) for each in names
    }


def distinct(lines: Mapping[int, Sequence[bytes | None]]) -> dict[int, set[bytes | None]]:
    """Ignore order and repetition within each partition."""
    return {partition: set(found) for partition, found in lines.items()}


def lag(broker: Broker, group: str) -> int:
    """Return the lag of the group."""
    known = independent.committed(broker.bootstrap, group, f"{group}.raw")
    return sum(end - known.get(place, 0) for place, end in independent.ends(broker.bootstrap, f"{group}.raw").items())


def test_a_broker_that_is_out(mortal: Broker, tmp_path: Path, long: bool) -> None:
    """
    The service stays alive and answers each scrape from its last snapshot, which shows its age.

    When the broker is back, the service recovers by itself, although `transaction.timeout` has passed: each line
    arrives once.
    """
    seconds, transactions = (120, {}) if long else (12, {"transaction.timeout": "10s"})
    config = create(mortal, "out") | transactions
    lines = [Written(line(n, each), None, each) for n in range(5_000) for each in range(PARTITIONS)]

    def outage(url: str) -> float:
        """Scrape continuously, as Prometheus does, and check that the service is alive."""
        away = metrics(url)["winnow_outage_seconds",]
        assert 200 == ask(f"{url}healthz")[0]
        return away

    def arrived(count: int) -> None:
        until(lambda: len(read(mortal.bootstrap, "out.clean")) >= count, "lines")

    with Winnow(config, tmp_path) as service:
        url = service.wait_for("status_page_up")["url"]
        produce(mortal.bootstrap, "out.raw", lines[: len(lines) // 2])
        arrived(len(lines) // 2)
        until(lambda: lag(mortal, "out") == 0, "the first half")
        service.wait_for("progress", times=len(service.logged("progress")) + 2)  # the driver has seen it
        produce(mortal.bootstrap, "out.raw", lines[len(lines) // 2 :])  # some of it is in open transactions now
        outages = len(service.logged("kafka_available"))
        mortal.stop()
        until(lambda: outage(url) > seconds, "it is out for long enough")
        scrape = metrics(url)
        assert 503 == ask(f"{url}readyz")[0]
        mortal.start()
        if long:  # a short outage need not end the round, so the driver may not have waited
            service.wait_for("kafka_available", times=outages + 1)
        arrived(len(lines))
        until(lambda: lag(mortal, "out") == 0, "the end")
        until(lambda: metrics(url)["winnow_outage_seconds",] == 0, "fresh figures")
        code = service.stop()

    assert 0 == code
    assert scrape["winnow_snapshot_age_seconds",] > seconds
    for partition in range(PARTITIONS):
        assert 2_500 <= scrape["kafka_consumergroup_group_offset", str(partition), "out.raw"] <= 5_000
    assert {n: [cleansed(i, n) for i in range(5_000)] for n in range(PARTITIONS)} == by_partition(
        read(mortal.bootstrap, "out.clean")
    )


def test_an_outage_does_not_silence_the_page(mortal: Broker, tmp_path: Path) -> None:
    """While Kafka is unavailable, a scrape returns the last snapshot and its age. The service is alive, not ready."""
    raw, clean, dead = (mortal.create_topic(f"page.{role}") for role in ("raw", "clean", "dead"))
    config = settings(mortal.bootstrap, group="page", sources=[raw], sink=clean, dead=dead)
    produce(mortal.bootstrap, raw, [Written(line(number, 0), b"k", 0) for number in range(10)])
    with Winnow(config, tmp_path) as service:
        url = service.wait_for("status_page_up")["url"]
        until(lambda: metrics(url).get(("winnow_records_in_total", "0", raw)) == 10, "all is cleansed")
        mortal.kill()
        until(lambda: metrics(url)["winnow_outage_seconds",] > 3, "the outage shows")
        found = metrics(url)

        assert 10 == found["winnow_records_in_total", "0", raw]
        assert found["winnow_snapshot_age_seconds",] > 3
        assert (200, 503) == (ask(f"{url}healthz")[0], ask(f"{url}readyz")[0])
        known = json.loads(ask(f"{url}api/status")[1])
        assert ("outage", "Kafka is not responding") == (known["service"]["word"], known["service"]["says"])
        assert [("unknown", None)] == [(each["condition"], each["records_per_second"]) for each in known["partitions"]]
