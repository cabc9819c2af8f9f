"""Opens the group's offset stores by name, and moves offsets between them or back to an earlier time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, closing
from functools import cached_property, partial
from typing import Any, Self

import yaml

from app.config import Config
from app.driver.clients import Clients
from app.errors import ConfigError, built
from app.model import Partition, Plugin, Topic, partitions_of
from app.offsets import history, migrate
from app.offsets.contract import OffsetHistory, OffsetStore, StoreContext, is_local
from app.offsets.migrate import Move
from app.offsets.registry import open_store
from app.operate.running import StoppedService

SOURCE = "source"
"""Names the group's offsets on the source's cluster if the sink has a cluster of its own."""
Say = Callable[[str], object]


class Stores:
    """
    The offset stores of one group, open until the block ends. `say` receives a line for each partition.

    Every method raises ConfigError if a store cannot be opened, or keeps nothing between runs.
    """

    def __init__(self, settings: Config, connect: Callable[[], Clients], say: Say) -> None:
        self._settings = settings
        self._connect = connect
        self._say = say
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def migrate(self, source: str, target: str, *, dry_run: bool, force: bool) -> bool:
        """Move the offsets from one store to another; return whether some moved and none was refused."""
        origin, destination = self._open("--from", source), self._open("--to", target)
        partitions = partitions_of(self._topics().values())
        moving = partial(migrate.moves, origin, destination, partitions, between_clusters=self._is_elsewhere(source))
        moves, refused = self._move(moving, destination, partitions, origin, dry_run=dry_run, force=force)
        migrate.report_left(moves, partitions, _choice(source)["name"], self._say)
        return bool(moves) and not refused

    def list_history(self, store: str | None, most: int) -> None:
        past = self._with_history(store)
        for topic in sorted(self._topics()):
            self._say(topic)
            for entry in past.history(topic, most):
                self._say(f"  {history.written(entry)}")

    def restore(self, store: str | None, moment: int, *, dry_run: bool) -> bool:
        """Set the offsets back to a time, in milliseconds since the epoch; return whether none was refused."""
        past, topics = self._with_history(store), self._topics()
        target = self._open("offsets.store", self._settings.offsets.store.name)
        moving, partitions = partial(history.moves_back, past, target, topics, moment), partitions_of(topics.values())
        moves, refused = self._move(moving, target, partitions, dry_run=dry_run, force=True)
        migrate.report_left(moves, partitions, "the history of that time", self._say)
        return not refused

    def _move(
        self,
        moving: Callable[[], Iterable[Move]],
        target: OffsetStore,
        partitions: Collection[Partition],
        *others: OffsetStore,
        dry_run: bool,
        force: bool,
    ) -> tuple[list[Move], int]:
        """Carry out moves, computed once no service changes offsets; return them, and how many were refused."""
        if dry_run:
            moves = list(moving())
            return moves, migrate.dry_run(moves, force=force, say=self._say)
        with StoppedService(self._settings, self._clients).changing(target, partitions, *others) as written:
            moves = list(moving())
            return moves, migrate.carry_out(moves, target, written, force=force, say=self._say)

    @cached_property
    def _clients(self) -> Clients:
        """Made once the stores are known to be usable."""
        return self._connect()

    def _topics(self) -> Mapping[str, Topic]:
        source = self._settings.source
        return self._clients.topics.source_topics(source.topics, source.topics_pattern, ())

    def _with_history(self, named: str | None) -> OffsetHistory:
        offsets = self._settings.offsets
        configured = [each.name for each in (offsets.store, *offsets.mirrors)]
        for name in [named] if named else configured:
            if isinstance(opened := self._open("--store", name), OffsetHistory):
                return opened
        said = f"{named} keeps no history" if named else f"no history is kept in {' or '.join(configured)}"
        raise ConfigError((f"--store: {said}: hbase does, as the store or as a mirror",))

    def _open(self, option: str, text: str) -> OffsetStore:
        """Open a store given by its name or in the configuration's form."""
        settings, choice = self._settings, _choice(text)
        name, options = str(choice.pop("name", "")), choice
        known = (settings.offsets.store, *settings.offsets.mirrors)
        plugin = next((each.plugin for each in known if each.name == name and not options), Plugin(name, options))
        context = StoreContext(settings.group_id, settings.output_kafka, placeholder=settings.placeholder)
        if self._is_elsewhere(name):
            plugin, context = Plugin("kafka"), StoreContext(settings.group_id, settings.kafka)
        opened = self._opened.enter_context(closing(built(option, lambda: open_store(plugin, context))))
        if is_local(opened):
            raise ConfigError((f"{option}: {name} keeps nothing between runs",))
        return opened

    def _is_elsewhere(self, name: str) -> bool:
        """Whether a store is on the source's cluster, and the sink is not."""
        return name == SOURCE and bool(self._settings.sink.kafka)


def _choice(text: str) -> dict[str, Any]:
    try:
        choice = yaml.safe_load(text)
    except yaml.YAMLError:
        choice = text
    return choice if isinstance(choice, dict) else {"name": text}
