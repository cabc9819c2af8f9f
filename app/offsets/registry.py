"""
Finds an offset store by its configured name.

A built-in store is one file here (Kafka's is with Kafka's clients) and one line in the table below, followed in
brackets by the package extra with its client. Another package adds a store with an entry point in the group
`winnow.offsets`: the name for the configuration, and a class or function that takes a `StoreContext` and the options as
keyword arguments.
"""

from __future__ import annotations

from typing import cast

from app.errors import WinnowError
from app.model import Plugin
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.failures import StoreOptionError, UnknownStore
from app.secrets import hidden, without_secrets
from parsers.plugins import Plugins

_STORES = Plugins(
    kind="offset store",
    method="load(partitions, *, stable)",
    group="winnow.offsets",
    built_in={
        "kafka": "app.kafka.offsets:KafkaGroupOffsets",
        "files": "app.offsets.files:FileOffsets [files]",
        "hbase": "app.offsets.hbase:HBaseOffsets [hbase]",
        "mysql": "app.offsets.mysql:MySqlOffsets [mysql]",
        "none": "app.offsets.none:NoOffsets",
        "redis": "app.offsets.redis:RedisOffsets [redis]",
        "zookeeper": "app.offsets.zookeeper:ZooKeeperOffsets [zookeeper]",
    },
    protocol=OffsetStore,
    unknown=UnknownStore,
    wrong_option=StoreOptionError,
    passed_on=(WinnowError,),
)


def problems(store: Plugin, context: StoreContext) -> list[tuple[str, str]]:
    """Return everything wrong with a store's options: the option, or nothing, and a sentence without secrets."""
    found = _STORES.problems(store.name, store.options, context)
    secrets = hidden(store.name, store.options)
    return [(option, without_secrets(problem, secrets)) for option, problem in found]


def open_store(store: Plugin, context: StoreContext) -> OffsetStore:
    """
    Open a store; it connects with its first call.

    Raises:
        UnknownStore: no usable store has that name.
        StoreOptionError: the store does not accept these options; the message quotes none that may be secret.
    """
    try:
        return cast("OffsetStore", _STORES.load(store.name, store.options, context))
    except StoreOptionError as error:
        raise StoreOptionError(without_secrets(str(error), hidden(store.name, store.options))) from None
