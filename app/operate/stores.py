"""Opens the group's offset stores by name, and moves offsets between them or back to an earlier time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, closing
from functools import cached_property, partial
from typing import Any

import yaml

from app.config import Config
from app.driver.clients import Clients
from app.errors import ConfigError, PartlySet, built
from app.model import Partition, Plugin, Topic, partitions_of
from app.offsets import migrate
from app.offsets.contract import OffsetHistory, OffsetStore, StoreContext, is_local
from app.offsets.migrate import Move
from app.offsets.registry import open_store
from app.operate.running import StoppedService

SOURCE = "source"
"""Names the group's offsets on the source's cluster if the sink has a cluster of its own."""
Say = Callable[[str], object]


class Stores(ExitStack):
    """
    The offset stores of one group, open until the block ends. `say` receives a line for each partition.

    Every method raises ConfigError if a store cannot be opened, or keeps nothing between runs.
    """

    def __init__(self, settings: Config, connect: Callable[[], Clients], say: Say) -> None:
        super().__init__()
        self._settings = settings
        self._connect = connect
        self._say = say
        self._configured = [each.plugin for each in (settings.offsets.store, *settings.offsets.mirrors)]

    def migrate(self, source: str, target: str, *, dry_run: bool, force: bool) -> bool:
        """Move the offsets from one store to another; return whether some moved and none was refused."""
        origin = self._lasting("--from", self._meant("--from", source))
        destination = self._lasting("--to", self._meant("--to", target))
        partitions = partitions_of(self._topics().values())
        moving = partial(migrate.moves, origin, destination, partitions, between_clusters=self._is_elsewhere(source))
        moves, refused = self._move(moving, destination, partitions, origin, dry_run=dry_run, force=force)
        migrate.report_left(moves, partitions, self._meant("--from", source).name, self._say)
        return bool(moves) and not refused

    def list_history(self, store: str | None, most: int) -> None:
        past = self._with_history(store)
        for topic in sorted(self._topics()):
            self._say(topic)
            for entry in past.history(topic, most):
                self._say(f"  {entry}")

    def restore(self, store: str | None, moment: int, *, dry_run: bool) -> bool:
        """Set the offsets back to a time, in milliseconds since the epoch; return whether none was refused."""
        past, topics = self._with_history(store), self._topics()
        target = self._lasting("offsets.store", self._settings.offsets.store.plugin)
        moving, partitions = partial(migrate.moves_back, past, target, topics, moment), partitions_of(topics.values())
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
        service = StoppedService(self._settings, self._clients)
        service.prepare(target, partitions, *others)
        moves = list(moving())

        def partly(count: int, why: str) -> PartlySet:
            cause = f"{count} of {len(moves)} offsets were moved, then {why}"
            return PartlySet(cause, "run it again: it leaves alone what is in place")

        with service.changing(target, partly) as written:
            return moves, migrate.carry_out(moves, target, written, force=force, say=self._say)

    @cached_property
    def _clients(self) -> Clients:
        """Made once the stores are known to be usable."""
        return self._connect()

    def _topics(self) -> Mapping[str, Topic]:
        source = self._settings.source
        return self._clients.topics.source_topics(source.topics, source.topics_pattern, ())

    def _with_history(self, named: str | None) -> OffsetHistory:
        asked = [self._meant("--store", named)] if named else self._configured
        for plugin in asked:
            if isinstance(opened := self._open("--store", plugin), OffsetHistory):
                return opened
        names = " or ".join(each.name for each in asked)
        said = f"{names} keeps no history" if named else f"no history is kept in {names}"
        raise ConfigError((f"--store: {said}: hbase does, as the store or as a mirror",))

    def _meant(self, option: str, text: str) -> Plugin:
        """Return the store given by its name or in the configuration's form."""
        options = _choice(option, text)
        name = str(options.pop("name", ""))
        known = [each for each in self._configured if each.name == name and not options]
        if len(known) > 1:
            raise ConfigError((f"{option}: {len(known)} stores are named {name}: write out the one that is meant",))
        return known[0] if known else Plugin(name, options)

    def _lasting(self, option: str, plugin: Plugin) -> OffsetStore:
        """Open a store that keeps something between runs."""
        if is_local(opened := self._open(option, plugin)):
            raise ConfigError((f"{option}: {plugin.name} keeps nothing between runs",))
        return opened

    def _open(self, option: str, plugin: Plugin) -> OffsetStore:
        settings = self._settings
        context = StoreContext(settings.group_id, settings.output_kafka, placeholder=settings.placeholder)
        if self._is_elsewhere(plugin.name):
            plugin, context = Plugin("kafka"), StoreContext(settings.group_id, settings.kafka)
        return self.enter_context(closing(built(option, lambda: open_store(plugin, context))))

    def _is_elsewhere(self, name: str) -> bool:
        """Whether a store is on the source's cluster, and the sink is not."""
        return name == SOURCE and bool(self._settings.sink.kafka)


def _choice(option: str, text: str) -> dict[str, Any]:
    """Return a store as the configuration would have it. No error quotes the text, which may hold a password."""
    with contextlib.suppress(yaml.YAMLError):
        choice = yaml.safe_load(text)
        if isinstance(choice, str | dict):
            return choice if isinstance(choice, dict) else {"name": choice}
    raise ConfigError((f"{option} must be the name of a store, or one in the configuration's form, in YAML",))
