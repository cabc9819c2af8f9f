"""How requests reach the model of Kafka and answers come back: slowly, twice, late, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from tests.simulation.history import History
from tests.simulation.kafka import Cluster
from tests.simulation.scheduler import Process, Scheduler

LATENCY_SECONDS = 0.002
QUESTIONS = frozenset(
    {"Metadata", "DescribeTopics", "DescribeConfigs", "DescribeGroups", "DescribeCluster", "ListOffsets"}
)
"""Requests that change nothing."""
BROKEN_SECONDS = (0.02, 0.3)
"""How soon a client notices that its connection is broken."""


class Kind(StrEnum):
    """
    What becomes of a request and its answer. A network that repeats requests is not among them: over TCP only a client
    can, after its connection broke. Then both copies may arrive, the first one after the second.
    """

    REQUEST_LOST = "request lost"
    REQUEST_LATE = "request late"
    """The connection breaks, and the request arrives after all, later."""
    REQUEST_HELD = "request held"
    ANSWER_LOST = "answer lost"
    ANSWER_HELD = "answer held"


class Fault(NamedTuple):
    """What happens to the next request of a kind; `seconds` is how late it or its answer comes."""

    api: str
    kind: Kind
    seconds: float


class NoAnswer(Exception):
    """The connection broke; nobody knows whether the request arrived."""


class TooLate(Exception):
    """No answer came in time."""


NO_ANSWER = object()
"""What a client gets in place of an answer when its connection breaks."""


class Network:
    """Carries requests. `armed` are the faults that wait for their request."""

    def __init__(self, scheduler: Scheduler, history: History) -> None:
        self._scheduler = scheduler
        self._history = history
        self._random = scheduler.rng
        self.armed: list[Fault] = []
        self.answers: Counter[tuple[str, str]] = Counter()
        """How often each answer was given, by request."""
        self.first_asked: dict[tuple[Process, str], float] = {}
        """When each process first sent each request."""
        self.first_answered: dict[tuple[Process, str], float] = {}
        """When the cluster first answered each request of each process by more than a code."""

    def post(
        self, process: Process, cluster: Cluster, api: str, apply: Callable[[], Any], answered: Callable[[Any], object]
    ) -> None:
        """Send a request; `answered` is called with its answer or NO_ANSWER, while the process runs."""
        scheduler, sender = self._scheduler, self._scheduler.current
        self.first_asked.setdefault((process, api), scheduler.now)

        def arrive(note: str = "") -> Any:
            answer = NO_ANSWER if cluster.down else apply()
            if not (answer is NO_ANSWER or isinstance(answer, int)):
                self.first_answered.setdefault((process, api), scheduler.now)
            self._count(api, answer)
            if self._history.kept:
                self._history.note(f"{sender}{note}", api, told(answer))
            return answer

        def broken() -> None:
            scheduler.after(self._random.uniform(*BROKEN_SECONDS), lambda: answered(NO_ANSWER), process)

        def arrive_and_answer(later: float = 0.0) -> None:
            answer = arrive()
            back = later + self._random.expovariate(1 / LATENCY_SECONDS)
            scheduler.after(back, lambda: answered(answer), process)

        way = self._random.expovariate(1 / LATENCY_SECONDS)
        if process.cut_off:
            broken()
        elif (fault := self._strikes(api)) is not None:
            self._history.note(str(sender), api, f"{fault.kind} ({fault.seconds:.1f} s)")
            self._strike(fault, way, arrive, arrive_and_answer, broken)
        elif api in QUESTIONS:  # in one step: when exactly they arrive does not matter
            scheduler.after(way, lambda: answered(arrive()), process)
        else:
            scheduler.after(way, arrive_and_answer)

    def _strike(
        self,
        fault: Fault,
        way: float,
        arrive: Callable[[str], Any],
        arrive_and_answer: Callable[..., None],
        broken: Callable[[], None],
    ) -> None:
        scheduler = self._scheduler

        def arrive_and_break() -> None:
            arrive("")
            broken()

        match fault.kind:
            case Kind.REQUEST_LOST:
                broken()
            case Kind.REQUEST_LATE:
                broken()
                scheduler.after(fault.seconds, lambda: arrive(", late"))
            case Kind.REQUEST_HELD:
                scheduler.after(fault.seconds, arrive_and_answer)
            case Kind.ANSWER_LOST:
                scheduler.after(way, arrive_and_break)
            case Kind.ANSWER_HELD:
                scheduler.after(way, lambda: arrive_and_answer(fault.seconds))

    def ask(self, process: Process, cluster: Cluster, api: str, apply: Callable[[], Any], seconds: float) -> Any:
        """
        Send a request and wait for its answer.

        Raises:
            NoAnswer: the connection broke.
            TooLate: no answer came in time; the request may still arrive.
        """
        scheduler = self._scheduler
        scheduler.refuse_if_dead()
        me, box, until = scheduler.current, list[Any](), scheduler.now + seconds

        def answered(answer: Any) -> None:
            box.append(answer)
            scheduler.wake(me)

        self.post(process, cluster, api, apply, answered)
        while not box:
            if (left := until - scheduler.now) <= 0:
                raise TooLate
            scheduler.park(left)
        if box[0] is NO_ANSWER:
            raise NoAnswer
        return box[0]

    def _strikes(self, api: str) -> Fault | None:
        for at, fault in enumerate(self.armed):
            if fault.api == api:
                return self.armed.pop(at)
        return None

    def _count(self, api: str, answer: Any) -> None:
        self.answers[api, error_name(answer) if isinstance(answer, int) else "answered"] += 1


def told(answer: Any) -> str:
    """Return an answer as people read it."""
    if answer is NO_ANSWER:
        return "no answer: the brokers are down"
    return error_name(answer) if isinstance(answer, int) else str(answer)


def error_name(code: int) -> str:
    return "ok" if code == 0 else KafkaError(code).name()
