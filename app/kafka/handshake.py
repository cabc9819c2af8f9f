"""
Probes a listener the way librdkafka connects to it, and explains why a connection fails.

librdkafka 2.16 has one message for every untrusted certificate, and none if a listener speaks another protocol or a
token server does not respond. So after such a failure this probes the listeners, without changing anything. Each
finding rests on an answer: a broker that is down or busy yields none.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from app.kafka.properties import BROKERS

SECONDS = 2.0
"""The limit for probing."""
USUAL_PORT = 9092
# OpenSSL's verification errors (x509_vfy.h), and the field of the certificate that explains each of the first two.
WRONG_TIMES = {10: ("has expired", "notAfter"), 9: ("is not valid yet", "notBefore")}
WRONG_HOSTS = (62, 64)
# The properties with our own certificate.
OUR_CERTIFICATE = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location", "ssl.engine.location")
# Python reads no other source of a certificate.
SHOWN = ("ssl.certificate.location", "ssl.key.location")
# Makes OpenSSL ignore validity times, so that an expired certificate can be read (X509_V_FLAG_NO_CHECK_TIME).
ANY_TIME = 0x20_0000
# SaslHandshake, version 1, correlation 0, client "winnow", without a mechanism: listeners answer it before any login.
QUESTION = struct.pack(">hhih6sh", 17, 1, 0, 6, b"winnow", 0)
UNSUPPORTED_MECHANISM = 33

Address = tuple[str, int]
Known = Mapping[str, Any]
"""The user's librdkafka properties, with the secrets' files read."""


class Objection(NamedTuple):
    """What prevents the connection, the cure, and whether it is an outage that passes without an operator."""

    cause: str
    cure: str
    passes: bool = False


def objection(known: Known, section: str = "kafka") -> Objection | None:
    """Return what prevents a connection to the brokers; None if nothing was found, or if they are down."""
    until = time.monotonic() + SECONDS
    for address in _addresses(known):
        if (left := until - time.monotonic()) <= 0:
            break
        with suppress(OSError, ValueError, struct.error):
            if found := _Broker(address, known, section, left).objection():
                return found
    return _of_tokens(known, section)


def _addresses(known: Known) -> Iterator[Address]:
    """Yield the host and port of each broker. librdkafka allows a protocol before them."""
    for server in next((str(known[name]) for name in BROKERS if name in known), "").split(","):
        with suppress(ValueError):
            at = urlsplit(f"//{server.strip().rpartition('//')[2]}")
            if at.hostname:
                yield at.hostname, at.port or USUAL_PORT


class _Broker:
    def __init__(self, address: Address, known: Known, section: str, seconds: float) -> None:
        self._address = address
        self._name = "{}:{}".format(*address)
        self._known = known
        self._section = section
        self._seconds = seconds
        self._protocol = str(known.get("security.protocol", "plaintext")).lower()

    def objection(self) -> Objection | None:
        """
        Return what prevents a connection to this broker; None if nothing does, or if it does not respond.

        Raises OSError if it cannot be reached, or if one of our own files cannot be read.
        """
        return self._with_tls() if self._protocol.endswith("ssl") else self._without_tls()

    def _without_tls(self) -> Objection | None:
        try:
            with self._connected() as connection:
                return self._of_login(_ask(connection))
        except (OSError, struct.error):
            return self._of_tls_listener()

    def _with_tls(self) -> Objection | None:
        try:
            with self._secured(self._context()) as connection:
                return self._of_login(_ask(connection))
        except ssl.SSLCertVerificationError as error:
            return self._of_certificate(error)
        except (OSError, struct.error) as error:
            return self._of_our_certificate(error) if _alarms(error) else self._of_plain_listener()

    def _of_login(self, mechanisms: list[str] | None) -> Objection | None:
        if mechanisms is None or self._protocol.startswith("sasl_"):
            return None
        names = ", ".join(mechanisms)
        protocol = f"SASL_{self._protocol.upper()}"
        cure = f"set {self._section}.security.protocol to {protocol}, and sasl.mechanisms to one of {names}"
        return Objection(f"{self._name} requires a SASL login ({names}), but none is configured", cure)

    def _of_tls_listener(self) -> Objection | None:
        with suppress(OSError), self._secured(_trusting_all()):
            login = "SASL_SSL" if self._protocol.startswith("sasl_") else "SSL, or to SASL_SSL if it requires a login"
            cause = f"{self._name} uses TLS, but security.protocol is {self._protocol.upper()}"
            return Objection(cause, f"set {self._section}.security.protocol to {login}")
        return None

    def _of_plain_listener(self) -> Objection | None:
        with suppress(OSError, struct.error), self._connected() as connection:
            _ask(connection)
            plain = self._protocol.replace("sasl_ssl", "sasl_plaintext").replace("ssl", "plaintext").upper()
            cure = f"point {self._section}.bootstrap.servers at a TLS listener, or set security.protocol to {plain}"
            return Objection(f"{self._name} does not use TLS, but security.protocol is {self._protocol.upper()}", cure)
        return None

    def _of_certificate(self, error: ssl.SSLCertVerificationError) -> Objection:
        theirs, code = f"the certificate of {self._name}", error.verify_code
        if code in WRONG_TIMES:
            problem, name = WRONG_TIMES[code]
            said = f"{theirs} {problem} ({name} {self._read().get(name, 'unknown')})"
            return Objection(said, "renew the broker's certificate, or correct this machine's clock")
        if code in WRONG_HOSTS:
            names = ", ".join(name for _, name in self._read().get("subjectAltName", ())) or "no host"
            there = f"{self._section}.bootstrap.servers and the brokers' advertised.listeners"
            cure = f"use the host names of the certificates in {there}"
            return Objection(f"{theirs} is for {names}, not for {self._address[0]}", cure)
        said = f"{theirs} is not signed by a trusted authority ({error.verify_message})"
        where = self._known.get("ssl.ca.location")
        now = f" (now {where})" if where else ""
        return Objection(said, f"set {self._section}.ssl.ca.location{now} to the CA of the brokers' certificates")

    def _of_our_certificate(self, error: OSError | struct.error) -> Objection | None:
        key = f"{self._section}.ssl.certificate.location"
        cure = f"set {key} and ssl.key.location to a certificate that the brokers trust"
        if not any(self._known.get(name) for name in OUR_CERTIFICATE):
            return Objection(f"{self._name} requires a client certificate, but none is configured", cure)
        if not all(self._known.get(name) for name in SHOWN):  # the broker has not seen ours
            return None
        if expired := _expired(self._known):
            cause = f"the client certificate has expired (notAfter {expired}), so {self._name} rejects it"
            return Objection(cause, f"renew the certificate in {key}")
        said = getattr(error, "reason", None) or error
        return Objection(f"{self._name} rejects the client certificate ({said})", cure)

    def _read(self) -> Mapping[str, Any]:
        """Return the broker's certificate, whatever its validity times and hosts are."""
        context = self._context()
        context.check_hostname = False
        context.verify_flags |= ANY_TIME
        with suppress(OSError), self._secured(context) as connection:
            return connection.getpeercert() or {}
        return {}

    def _connected(self) -> socket.socket:
        return socket.create_connection(self._address, self._seconds)

    @contextmanager
    def _secured(self, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
        with self._connected() as bare, context.wrap_socket(bare, server_hostname=self._address[0]) as connection:
            yield connection

    def _context(self) -> ssl.SSLContext:
        """Return a TLS context with our authorities and certificate, as librdkafka's properties say."""
        known = self._known
        if str(known.get("enable.ssl.certificate.verification", "true")).lower() == "false":
            context = _trusting_all()
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = known.get("ssl.endpoint.identification.algorithm", "https") != "none"
            if authority := known.get("ssl.ca.pem"):
                context.load_verify_locations(cadata=str(authority))
            elif authority := known.get("ssl.ca.location"):
                context.load_verify_locations(str(authority))
            else:
                context.load_default_certs()
        _show(context, known)
        return context


def _trusting_all() -> ssl.SSLContext:
    """Return a context that accepts every certificate; use it only to send nothing secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _show(context: ssl.SSLContext, known: Known) -> None:
    """Load our certificate if it is in PEM files."""
    certificate, key = map(known.get, SHOWN)
    if certificate and key:
        context.load_cert_chain(str(certificate), str(key), str(known.get("ssl.key.password", "")))


def _expired(known: Known) -> str:
    """Return when our own certificate expired; empty if it has not. An in-memory handshake with ourselves reads it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _show(server, known)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ANY_TIME | ssl.VERIFY_X509_PARTIAL_CHAIN
    with suppress(OSError, KeyError):
        client.load_verify_locations(str(known["ssl.certificate.location"]))
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours, theirs = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
        for side in (ours, theirs, ours):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        until = str((ours.getpeercert() or {}).get("notAfter", ""))
        return until if until and ssl.cert_time_to_seconds(until) < time.time() else ""
    return ""


def _alarms(error: Exception) -> bool:
    """Return whether the broker rejected our certificate: its alert is about ours, because we accepted its own."""
    reason = str(getattr(error, "reason", "") or "").upper()
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def _ask(connection: socket.socket) -> list[str] | None:
    """Return the SASL mechanisms that a listener offers; None if it does not use SASL."""
    connection.sendall(struct.pack(">i", len(QUESTION)) + QUESTION)
    with connection.makefile("rb") as response:
        (size,) = struct.unpack(">i", response.read(4))
        if not 0 < size < 1 << 16:
            raise struct.error("the response is not Kafka's")
        answer = response.read(size)
    _, code, count = struct.unpack_from(">ihi", answer)
    if code != UNSUPPORTED_MECHANISM:
        return None
    names, at = list[str](), 10
    for _ in range(count):
        (length,) = struct.unpack_from(">h", answer, at)
        names.append(answer[at + 2 : at + 2 + length].decode())
        at += 2 + length
    return sorted(names)


def _of_tokens(known: Known, section: str) -> Objection | None:
    """Return an objection if the token server does not respond; librdkafka waits for it without a message."""
    name = "sasl.oauthbearer.token.endpoint.url"
    url = known.get(name)
    if not url or str(known.get("sasl.oauthbearer.method", "")).lower() != "oidc":
        return None
    try:
        return _of_token_server(urlsplit(str(url)), f"{section}.{name}")
    except ValueError:  # its text may repeat a password
        return Objection(f"{section}.{name} is not the URL of a server", "correct its host and port")


def _of_token_server(at: SplitResult, name: str) -> Objection | None:
    host = at.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, at.port, timeout=SECONDS, context=_trusting_all())
        if at.scheme == "https"
        else http.client.HTTPConnection(host, at.port, timeout=SECONDS)
    )
    try:
        connection.request("POST", at.path or "/")  # without credentials: any response shows that it is up
        connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        port = f":{at.port}" if at.port else ""
        where = f"the token server {at.scheme}://{host}{port}{at.path}"  # without any user and password
        return Objection(f"{where} is not responding ({error})", f"restore it, or correct {name}", passes=True)
    finally:
        connection.close()
    return None
