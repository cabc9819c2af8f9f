"""
librdkafka through ctypes: the library bundled with confluent-kafka, and the handles of confluent-kafka's clients.

Everything here is librdkafka's public C interface, except one fact about confluent-kafka: the `rd_kafka_t *` of a
client follows the object's header. `problem` says whether this process may rely on that.
"""

from __future__ import annotations

import ctypes as c
import sys
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from typing import Any, ClassVar, cast

from confluent_kafka import Consumer, KafkaError, Producer, cimpl, libversion

TESTED = {"2.16.0": "2.16.0", "2.16.1": "2.16.0"}
"""
The tested versions of confluent-kafka, with the librdkafka bundled with each.

Another version may have a different layout, and following a wrong pointer kills the process, so it is not even tried.
Add a version once `tests/integration/test_conformance.py` passes with it.
"""

TOPIC, PARTITION, VALUE, KEY, MESSAGE_FLAGS, TIMESTAMP, HEADER = 2, 3, 4, 5, 7, 8, 9
"""The kinds of a produced record's `Field` (rd_kafka_vtype_t)."""
COPY = 2
"""The flag to copy the bytes of a produced record (RD_KAFKA_MSG_F_COPY)."""
DELIVERY_REPORT = 1
"""The type of delivery-report events (RD_KAFKA_EVENT_DR)."""
QUEUE_FULL: int = KafkaError._QUEUE_FULL  # noqa: SLF001  # librdkafka's own codes are only exported with an underscore

Layout = Sequence[tuple[str, type[Any]]]


class Message(c.Structure):
    """A consumed record, or an error in place of one (rd_kafka_message_t)."""

    _fields_: ClassVar[Layout] = [
        ("error", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("value", c_void_p),
        ("value_size", c_size_t),
        ("key", c_void_p),
        ("key_size", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    ]


class Field(c.Structure):
    """One field of a produced record (rd_kafka_vu_t); the words are the members of its union."""

    _fields_: ClassVar[Layout] = [("kind", c_int), ("words", c_int64 * 8)]


MESSAGE_SIZE, FIELD_WORDS = 72, 9

_library = c.CDLL(cimpl.__file__)


def _function(name: str, result: type[Any] | None, *arguments: type[Any]) -> Any:  # noqa: ANN401  # a foreign function
    function = getattr(_library, f"rd_kafka_{name}")
    function.restype, function.argtypes = result, arguments
    return function


def address(function: Any) -> int:  # noqa: ANN401  # a foreign function
    """Return the address of a function, for kernels that call it."""
    return cast("int", c.cast(function, c_void_p).value)


version = _function("version", c_int)
name = _function("name", c_char_p, c_void_p)
topic_new = _function("topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
topic_name = _function("topic_name", c_char_p, c_void_p)
topic_destroy = _function("topic_destroy", None, c_void_p)
consumer_queue = _function("queue_get_consumer", c_void_p, c_void_p)
main_queue = _function("queue_get_main", c_void_p, c_void_p)
queue_destroy = _function("queue_destroy", None, c_void_p)
queue_forward = _function("queue_forward", None, c_void_p, c_void_p)
queue_poll = _function("queue_poll", c_void_p, c_void_p, c_int)
consume_batch = _function("consume_batch_queue", c_ssize_t, c_void_p, c_int, c_void_p, c_size_t)
message_destroy = _function("message_destroy", None, c_void_p)
message_timestamp = _function("message_timestamp", c_int64, c_void_p, c_void_p)
message_leader_epoch = _function("message_leader_epoch", c_int32, c_void_p)
message_errstr = _function("message_errstr", c_char_p, c_void_p)
message_headers = _function("message_headers", c_int, c_void_p, POINTER(c_void_p))
header_get_all = _function(
    "header_get_all", c_int, c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_void_p), POINTER(c_size_t)
)
produceva = _function("produceva", c_void_p, c_void_p, c_void_p, c_size_t)
error_code = _function("error_code", c_int, c_void_p)
error_string = _function("error_string", c_char_p, c_void_p)
error_destroy = _function("error_destroy", None, c_void_p)
event_type = _function("event_type", c_int, c_void_p)
event_error = _function("event_error", c_int, c_void_p)
event_error_string = _function("event_error_string", c_char_p, c_void_p)
event_destroy = _function("event_destroy", None, c_void_p)
waiting = _function("outq_len", c_int, c_void_p)
_fatal_error = _function("fatal_error", c_int, c_void_p, c_char_p, c_size_t)


def handle(client: Consumer | Producer) -> int:
    """Return the `rd_kafka_t *` of a client; raises RuntimeError if it is closed, TypeError if it is another's."""
    if not isinstance(client, Consumer | Producer):
        raise TypeError(f"{type(client).__name__} has no rd_kafka_t")
    found = c_void_p.from_address(id(client) + object.__basicsize__).value
    if found is None:
        raise RuntimeError("the client is closed")
    return found


def kafka_error(code: int, text: bytes | None) -> KafkaError:
    return KafkaError(code, _text(text))


def take_error(error: int) -> KafkaError:
    """Return the error that a call returned, and free it."""
    taken = kafka_error(error_code(error), error_string(error))
    error_destroy(error)
    return taken


def fatal_error(client: int) -> KafkaError | None:
    """Return why a client has failed for good; None if it has not."""
    text = c.create_string_buffer(512)
    code = _fatal_error(client, text, len(text))
    return kafka_error(code, text.value) if code else None


def headers_of(message: int) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record; bytes in a name that are not UTF-8 are replaced."""
    headers = c_void_p()
    if message_headers(message, headers):
        return []  # the error means that there are none
    key, value, size = c_char_p(), c_void_p(), c_size_t()
    found: list[tuple[str, bytes | None]] = []
    while not header_get_all(headers, len(found), key, value, size):
        found.append((_text(key.value), c.string_at(value.value, size.value) if value.value is not None else None))
    return found


def _text(text: bytes | None) -> str:
    return (text or b"").decode("utf-8", "replace")


def problem() -> str:  # noqa: PLR0911  # one return for each guard
    """Return why the bulk backend cannot use librdkafka directly here; empty if it can."""
    carried, number = libversion()
    installed = str(cimpl.version())
    if sys.implementation.name != "cpython":
        return f"the interpreter is {sys.implementation.name}, not CPython"
    if (c.sizeof(c_void_p), sys.byteorder) != (8, "little"):
        return "the machine is not 64-bit little-endian"
    if (c.sizeof(Message), c.sizeof(Field)) != (MESSAGE_SIZE, 8 * FIELD_WORDS):
        return "librdkafka's structs have a different layout here"
    if TESTED.get(installed) != carried:
        known = " or ".join(f"{each} with librdkafka {library}" for each, library in TESTED.items())
        return f"it supports confluent-kafka {known}, but {installed} with librdkafka {carried} is installed"
    if version() != number:
        return "another librdkafka is loaded instead of the one bundled with confluent-kafka"
    probe = Producer({"bootstrap.servers": "localhost:9", "client.id": "winnow-probe", "log_level": 0})
    if not (name(handle(probe)) or b"").startswith(b"winnow-probe#producer-"):
        return "confluent-kafka's client objects have an unknown layout"
    return ""
