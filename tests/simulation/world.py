"""Puts the model in place of confluent_kafka, and the scheduler in place of clocks and threads, below the product."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from queue import SimpleQueue
from types import FunctionType
from typing import Any, Self, TypeVar

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient

import app.driver
import app.executor
import app.executor.lane
import app.kafka
import app.kafka.plain
import app.operate
from app.executor.parse import parse
from app.runtime import REAL, Runtime
from tests.simulation import librdkafka, scheduler
from tests.simulation.scheduler import EPOCH, Scheduler, SimExecutor, SimFuture, SimLocal, SimThreading, SimTime

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SimRuntime(Runtime):
    """The simulation's clock and threads."""

    def background(self, call: Callable[[], T]) -> SimFuture[T]:
        threads: Executor = SimExecutor(1, "background")
        return threads.submit(call)  # type: ignore[return-value]


def wall_clock() -> float:
    return EPOCH + scheduler.running().clock()


class HungryWatchdog:
    """Replaces the watchdog of a worker: biting kills the simulated process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def feed(self) -> None:
        pass

    def bite(self) -> None:
        running = scheduler.running()
        running.kill(running.current.process)
        running.refuse_if_dead()


REPLACED = {
    id(Producer): librdkafka.FakeProducer,
    id(Consumer): librdkafka.FakeConsumer,
    id(AdminClient): librdkafka.FakeAdmin,
    id(Message): librdkafka.FakeMessage,
    id(Future): SimFuture,
    id(wait): scheduler.wait,
    id(time): SimTime,
    id(threading): SimThreading,
    id(SimpleQueue): scheduler.SimQueue,
    id(time.sleep): SimTime.sleep,
    id(time.time): SimTime.time,
    id(time.monotonic): SimTime.monotonic,
    id(REAL): SimRuntime(SimTime.monotonic, wall_clock, SimExecutor),
}
"""What replaces a class, a function or a module, wherever a module has it under a name or a function as a default."""
UNTOUCHED = ("app.kafka.bulk", "app.embedded", "app.demo", "app.cli", "app.spark")


@cache
def _loaded() -> tuple[Any, ...]:
    """Return every module of the product that a schedule may reach."""
    for package in (app.driver, app.executor, app.executor.lane, app.kafka, app.kafka.plain, app.operate):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not found.ispkg and not found.name.startswith(UNTOUCHED):
                importlib.import_module(found.name)
    importlib.import_module("app.start")
    names = [
        name for name in sys.modules if name.startswith("app.") and not name.startswith((*UNTOUCHED, "app.runtime"))
    ]
    return tuple(sys.modules[name] for name in sorted(names))


def _functions(module: Any) -> Iterator[FunctionType]:
    """Yield a module's functions, and the methods of its classes."""
    for value in vars(module).values():
        members = vars(value).values() if isinstance(value, type) else (value,)
        yield from (each for each in members if isinstance(each, FunctionType) and each.__module__ == module.__name__)


@contextmanager
def installed() -> Iterator[None]:
    """Replace everything for the time of the block. A generator must not hold it: it would undo this too late."""
    assert sys.modules["app.executor.task"].Watchdog is not HungryWatchdog, "another simulation has not ended"
    undo: list[tuple[Any, str, Any]] = []

    def replace(module: Any, name: str, new: Any) -> None:
        undo.append((module, name, getattr(module, name)))
        setattr(module, name, new)

    for module in _loaded():
        for name, value in list(vars(module).items()):
            if id(value) in REPLACED:
                replace(module, name, REPLACED[id(value)])
        for function in _functions(module):
            defaults, named = function.__defaults__ or (), function.__kwdefaults__ or {}
            if any(id(each) in REPLACED for each in (*defaults, *named.values())):
                replace(function, "__defaults__", tuple(REPLACED.get(id(each), each) for each in defaults))
                replace(function, "__kwdefaults__", {key: REPLACED.get(id(each), each) for key, each in named.items()})
    replace(sys.modules["app.executor.task"], "Watchdog", HungryWatchdog)
    replace(sys.modules["app.executor.task"], "_garbage_collection", nullcontext)
    replace(sys.modules["app.executor.task"], "parsing", lambda parser, *_: nullcontext(partial(parse, parser)))
    replace(sys.modules["app.kafka.admin"], "objection", lambda *_: None)
    replace(sys.modules["app.watchdog"], "_of_thread", SimLocal())
    replace(sys.modules["app.events"].Event, "log", _log)
    try:
        yield
    finally:
        for module, name, old in reversed(undo):
            setattr(module, name, old)


def _log(event: Any, **fields: object) -> None:
    """Put a line of the product's log into the history."""
    history = librdkafka.world().history
    if history.kept:
        said = " ".join(f"{name}={value}" for name, value in fields.items())
        process = scheduler.running().current.process
        history.note(f"{process.name} log", event.key, said[:200])


def make_runtime(of: Scheduler, host: str, **timings: float) -> SimRuntime:
    """Return the runtime of a process."""
    usual = Runtime().timings._replace(**timings)
    return SimRuntime(of.clock, wall_clock, SimExecutor, host, usual)
