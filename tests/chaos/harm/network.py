"""Spoils the connections of the service, and of the brokers with each other: what is under way is late, or lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.chaos.brokers import GROUPS
from tests.chaos.cluster import System, kill, until
from tests.chaos.harm.base import PATIENCE, POLL_SECONDS, PROGRESS_SECONDS, Harm, Missed, choose
from tests.chaos.load import Load
from tests.chaos.proxy import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    BROKERS,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    SERVICE,
    TXN_OFFSET_COMMIT,
    WRITE_MARKERS,
    Fate,
    Packet,
    What,
)

HELD = 12
"""So many late requests suffice: some of them meet the next transaction half-way."""
REOPEN_SECONDS = 3.0
LOST, BROKEN = 0.05, 0.001
SENT_AGAIN_SECONDS = 0.2
"""How soon Linux sends a packet again at the earliest."""


@contextmanager
def connections_cut(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Cut all connections between the service and Kafka, a few times."""
    yield "all"
    for _ in range(rng.randint(1, 5)):
        system.proxy.cut()
        time.sleep(rng.uniform(0.1, 1))


@contextmanager
def connections_delayed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Delay each request."""
    late = Fate(What.DELAYED, rng.uniform(0.02, 0.5))
    with system.proxy.rule(lambda packet: late if packet.listener == SERVICE and packet.api is not None else None):
        yield f"{late.seconds:.2f} s"
        time.sleep(rng.uniform(3, 8))


@contextmanager
def connections_dropped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Drop all traffic between the service and Kafka for a while, then cut the connections."""
    with system.proxy.dropping():
        yield "all"
        time.sleep(rng.uniform(2, 20))


@contextmanager
def connections_lossy(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """
    Lose one packet in twenty of everybody's, as far as programs notice that over TCP.

    A lost packet comes when TCP sends it again, after twice the time each time; what is behind it on its connection waits,
    and other connections overtake it. Now and then a connection breaks.
    """

    def lose(packet: Packet) -> Fate | None:
        if rng.random() < BROKEN:
            return Fate(What.RESET)
        late = 0.0
        while rng.random() < LOST:
            late = 2 * late or SENT_AGAIN_SECONDS
        return Fate(What.DELAYED, late) if late else None

    with system.proxy.rule(lose):
        yield f"{LOST:.0%} of the packets"
        time.sleep(rng.uniform(10, 20))


def _nothing(system: System, rng: random.Random) -> None:
    """Wait for requests that come by themselves."""


def _open_again(system: System, rng: random.Random) -> None:
    """Let a task start anew, which asks for a producer id for each of its partitions."""
    if victim := choose(rng, lambda: system.workers):
        kill(victim)
    time.sleep(REOPEN_SECONDS)


def _held(
    api: int,
    listener: str = SERVICE,
    share: float = 0.3,
    provoke: Callable[[System, random.Random], None] = _nothing,
) -> Harm:
    """Cut connections while such a request is in flight, and deliver it after the next transaction has begun."""

    @contextmanager
    def hold(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        def rule(packet: Packet) -> Fate | None:
            about = listener == SERVICE or any(topic.encode() in packet.frame for topic in ours)
            meant = (packet.listener, packet.api) == (listener, api) and about and rng.random() < share
            return Fate(What.HELD, rng.uniform(0.2, 2)) if meant else None

        before, ours = system.proxy.held[api], [*system.roles.values(), GROUPS]
        with system.proxy.rule(rule):
            yield f"{share:.0%} of the requests"
            deadline = time.monotonic() + PROGRESS_SECONDS
            while system.proxy.held[api] < before + HELD and time.monotonic() < deadline:
                provoke(system, rng)
                time.sleep(POLL_SECONDS)
        if system.proxy.held[api] == before:
            message = f"no request {api} was held"
            raise Missed(message)

    return hold


def _cut_off(*, whole: bool, both: bool) -> Harm:
    """
    Cut a broker off from another one, or from all; the service still reaches each.

    What is under way is lost, or comes when the network is back, as TCP delivers it.
    """

    @contextmanager
    def cut_off(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        one, *others = rng.sample(system.broker.nodes, system.size.brokers)
        others = others if whole else others[:1]
        ways = {(one, other) for other in others} | ({(other, one) for other in others} if both else set())
        what = rng.choice((What.DROPPED, What.STALLED))

        met = False

        def concerns(packet: Packet) -> bool:
            return (packet.sender, packet.receiver) in ways

        def rule(packet: Packet) -> Fate | None:
            nonlocal met
            met = met or concerns(packet)
            return Fate(what) if concerns(packet) else None

        with system.proxy.rule(rule):
            yield f"node {one} {'from' if both else 'to'} {', '.join(map(str, others))}, {what.name.lower()}"
            time.sleep(rng.uniform(3, 20))
        if what == What.DROPPED:
            system.proxy.cut(concerns)
        until(lambda: system.broker.in_sync, PATIENCE)
        if not met:
            message = f"no packet went {ways}"
            raise Missed(message)

    return cut_off


ANYWHERE: Mapping[str, Harm] = {
    "connections cut": connections_cut,
    "connections delayed": connections_delayed,
    "connections dropped": connections_dropped,
    "connections lossy": connections_lossy,
    "InitProducerId held": _held(INIT_PRODUCER_ID, share=0.5, provoke=_open_again),
    "AddPartitionsToTxn held": _held(ADD_PARTITIONS),
    "AddOffsetsToTxn held": _held(ADD_OFFSETS),
    "Produce held": _held(PRODUCE),
    "TxnOffsetCommit held": _held(TXN_OFFSET_COMMIT),
    "EndTxn held": _held(END_TXN),
    "WriteTxnMarkers held": _held(WRITE_MARKERS, BROKERS),
}
ON_A_CLUSTER: Mapping[str, Harm] = {
    "brokers cut off": _cut_off(whole=False, both=True),
    "brokers cut off, one way": _cut_off(whole=False, both=False),
    "broker isolated": _cut_off(whole=True, both=True),
    "broker isolated, one way": _cut_off(whole=True, both=False),
}
