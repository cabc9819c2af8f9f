"""Reads the headers of records that confluent-kafka has consumed, in tasks on the plain backend and in commands."""

from __future__ import annotations

from confluent_kafka import Message

from app.headers import Headers


def headers_of(message: Message) -> Headers:
    """
    Return the headers of a record; none if a name is not UTF-8.

    Kafka allows any bytes in a name. For such a name confluent-kafka 2.16 raises SystemError and leaves a list with
    holes behind; reading it a second time kills the process.
    """
    try:
        return message.headers() or []  # type: ignore[return-value]  # consumed ones are bytes or None
    except (SystemError, UnicodeDecodeError):
        message.set_headers([])
        return []
