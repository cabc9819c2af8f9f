"""Reads the headers of a record that confluent-kafka has consumed: in tasks with plain records, and in commands."""

from __future__ import annotations

from confluent_kafka import Message

from app.headers import Headers


def headers_of(message: Message) -> Headers:
    """
    Return the headers of a record; none where a name is not UTF-8.

    Kafka takes any bytes for a name. For such a name confluent-kafka 2.16 raises SystemError, and leaves a list with
    holes behind, of which a second look kills the process.
    """
    try:
        return message.headers() or []  # type: ignore[return-value]  # consumed ones are bytes or None
    except (SystemError, UnicodeDecodeError):
        message.set_headers([])
        return []
