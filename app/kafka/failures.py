"""Decides what a Kafka error means for Winnow, in one place."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping

from confluent_kafka import KafkaError, KafkaException

from app.cures import CHECK
from app.errors import (
    Fenced,
    NotAllowed,
    NotUsable,
    OffsetMoved,
    PartitionError,
    Refused,
    Transient,
    Truncated,
    Undelivered,
    Unreachable,
)
from app.model import Partition, SinkKafka

FENCED = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001  # librdkafka's own codes are only exported with an underscore
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
OUT_OF_RANGE = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})  # noqa: SLF001
# librdkafka asks where the leader epoch of a position ends (KIP-320), and reports the answer only as text. An end of -1
# means that the log has no such epoch: it is another one, such as that of a recreated topic without a topic id.
TRUNCATION = re.compile(
    r"(truncation detected at|No epoch found less or equal to) offset (?P<offset>\d+).* end offset is (?P<end>-?\d+)"
)
NOT_ALLOWED = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError._SSL,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SECURITY_DISABLED,
    }
)
MISCONFIGURED = frozenset(
    {
        KafkaError._INVALID_ARG,  # noqa: SLF001
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.TOPIC_EXCEPTION,
    }
)
# The codes by which a broker refuses to create or grow a topic, and would again until somebody changes something.
TOPIC_REFUSED = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
    }
)


def error_of(problem: KafkaError | KafkaException) -> KafkaError:
    """Return the error, which an exception may carry."""
    error = problem.args[0] if isinstance(problem, KafkaException) else problem
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(error))  # noqa: SLF001


def timed_out(said: str | None = None) -> KafkaException:
    """Return the error for something that has not happened in time."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, said))  # noqa: SLF001


def is_end(error: KafkaError) -> bool:
    """Return whether this only reports the end of a partition."""
    return error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001


def raised(error: KafkaException | SystemError) -> KafkaException:
    """
    Return the exception that confluent-kafka meant to raise; raise any other error again.

    If a client fails fatally (a fence, for example) while `flush` waits, confluent-kafka keeps that error and raises it
    at the end. If librdkafka logs a line before that, Python finds the pending error in the logger's call and raises a
    SystemError, whose cause is the original error.
    """
    if isinstance(error, KafkaException):
        return error
    if isinstance(error.__cause__, KafkaException):
        return error.__cause__
    raise error


def of_partition(
    problem: KafkaError | KafkaException, partition: Partition, doing: str, offset: int | None = None
) -> PartitionError:
    """Return what an error means for the owner of a partition."""
    error = error_of(problem)
    if error.code() in FENCED:
        return Fenced(partition, "another owner took over this partition; no data is lost", offset)
    if error.code() in OUT_OF_RANGE and (found := TRUNCATION.search(error.str())):
        return Truncated(partition, int(found["offset"]), max(0, int(found["end"])))
    if error.code() in OUT_OF_RANGE:
        return OffsetMoved(partition, "the partition no longer holds this offset", offset)
    return Transient(partition, f"{doing} failed: {error.str()} ({error.name()})", offset)


# The codes by which a broker or librdkafka refuses a record permanently. Errors that do not blame a record, such as
# UNKNOWN, are left out: a broker fault must not turn a good line into a dead letter.
RECORD_REFUSED = frozenset(
    {
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._INVALID_DIFFERENT_RECORD,  # noqa: SLF001
    }
)


def of_writing(
    problem: KafkaError | KafkaException, partition: Partition, doing: str, offset: int | None = None
) -> PartitionError:
    """Return what an error means for a partition's writer: as `of_partition`, or what happens to its records."""
    found = of_partition(problem, partition, doing, offset)
    if not isinstance(found, Transient):
        return found
    kind = Refused if error_of(problem).code() in RECORD_REFUSED else Undelivered
    return kind(partition, found.cause, offset)


NO_ANSWER = frozenset(
    {
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    }
)
# How confluent-kafka begins if librdkafka makes no client, and how the names of files' properties end. The service has
# checked its settings at the start, so perhaps a certificate was replaced, and its key will be in a moment.
NO_CLIENT, FILES = "Failed to create ", ".location"
CURES = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"grant the right that {CHECK} names",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "lower transaction.timeout, or raise the brokers' transaction.max.timeout.ms"
    ),
    KafkaError.TOPIC_EXCEPTION: "correct the topic's name",
}
# The state and duration that librdkafka appends to the errors of a connection.
WHEN = re.compile(r" \(after \d+ms in state \w+.*\)$")
# librdkafka's texts for failed logins, and the cures; the first match counts.
LOGINS: Mapping[str, str] = {
    r"broker's supported mechanisms: (?P<names>[A-Z][^()]*[^()\s])": "set {section}.sasl.mechanisms to one of {names}",
    r"not valid in current SASL state": (
        "this listener does not use SASL: choose another one, or set {section}.security.protocol to one without SASL"
    ),
    r"OAUTHBEARER|invalid_token": (
        "check the credentials {section}.sasl.oauthbearer.client.id and client.secret, and the brokers' token settings"
    ),
    r"[Aa]uthentication failed": (
        "check the credentials {section}.sasl.username and sasl.password (or sasl.password.file)"
    ),
}


def is_refusal(error: KafkaError) -> bool:
    """Return whether Kafka denies access, because of credentials, certificates or ACLs."""
    return error.code() in NOT_ALLOWED


def is_about(failure: NotUsable, codes: Collection[int]) -> bool:
    """Return whether Kafka answered with one of these codes."""
    problem = failure.__cause__
    return isinstance(problem, KafkaException) and error_of(problem).code() in codes


def tells_too_little(error: KafkaError) -> bool:
    """Return whether an error leaves the cause open: no answer, an untrusted certificate, or no token."""
    code = error.code()
    return code in NO_ANSWER or code == KafkaError._SSL or "acquire SASL OAUTHBEARER token" in error.str()  # noqa: SLF001


def called(kafka: Mapping[str, str]) -> str:
    """Return what messages call the cluster with these properties."""
    return "the sink's Kafka" if isinstance(kafka, SinkKafka) else "Kafka"


def section_of(kafka: Mapping[str, str]) -> str:
    """Return the section of the configuration that holds these properties."""
    return "sink.kafka" if isinstance(kafka, SinkKafka) else "kafka"


def decisive(problem: KafkaError | KafkaException, connection: KafkaError | None) -> KafkaError:
    """Return the more specific error: if no broker took a request, only a connection's last error gives the reason."""
    error = error_of(problem)
    return connection if connection is not None and error.code() in NO_ANSWER else error


@contextlib.contextmanager
def explaining(kafka: Mapping[str, str], doing: str = "making a client") -> Iterator[None]:
    """Translate the errors of the cluster with these properties."""
    try:
        yield
    except KafkaException as error:
        raise of_cluster(error, doing, kafka) from error


def of_cluster(
    problem: KafkaError | KafkaException,
    doing: str,
    kafka: Mapping[str, str],
    rejections: Collection[int] = MISCONFIGURED,
) -> NotUsable | Unreachable:
    """
    Return what an error means for the service: it waits for Kafka, or it stops and tells the operator.

    `kafka` holds the properties of the client's cluster; `rejections` are the codes that no later request would change.
    """
    error, cluster, section = error_of(problem), called(kafka), section_of(kafka)
    text = f"{doing}: {WHEN.sub('', error.str())} ({error.name()})"
    if is_refusal(error):
        usual = f"check the credentials, certificates and ACLs under `{section}`"
        cure = CURES.get(error.code()) or _of_login(error.str(), section) or usual
        return NotAllowed(f"{cluster} denied access while {text}", cure)
    if error.code() in MISCONFIGURED and error.str().startswith(NO_CLIENT):
        wrong = f"the files that `{section}` names" if FILES in error.str() else f"what `{section}` sets"
        cure = f"correct {wrong}; a running service tries again until they match"
        return Unreachable(f"{cluster} cannot be reached while {text}", cure)
    if error.code() in rejections:
        cure = CURES.get(error.code(), f"check the settings under `{section}`")
        return NotUsable(f"{cluster} rejected the request while {text}", cure)
    return Unreachable(f"{cluster} is not responding while {doing}: {error.str()}")


def _of_login(said: str, section: str) -> str:
    """Return the cure for a failed login; empty if the text is about something else."""
    found = ((re.search(pattern, said), cure) for pattern, cure in LOGINS.items())
    return next((cure.format(section=section, **match.groupdict()) for match, cure in found if match), "")
