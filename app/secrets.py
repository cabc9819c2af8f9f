"""
Masks secrets. Only values of keys known to hold none are shown; all others, including misspelt keys, become `***`.

The configuration, Spark's arguments, error messages and the log all use it, in any process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"

KAFKA_SECRETS = frozenset(
    # Kept as text for comparison with librdkafka's CONFIGURATION.md.
    """
    https.ca.pem sasl.kerberos.kinit.cmd sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.password sasl.username
    ssl.ca.pem ssl.certificate.pem ssl.key.password ssl.key.pem ssl.keystore.password ssl_ca ssl_certificate ssl_key
    """.split()  # noqa: SIM905
)
"""The librdkafka properties that may hold a secret. `NAME.file` is a path to one."""

KAFKA = frozenset(
    """
    acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    auto.commit.enable auto.commit.interval.ms auto.offset.reset batch.num.messages batch.size bootstrap.servers
    broker.address.family broker.address.ttl broker.version.fallback builtin.features check.crcs client.dns.lookup
    client.id client.rack compression.codec compression.level compression.type connections.max.idle.ms
    consume.callback.max.messages coordinator.query.interval.ms debug delivery.report.only.error delivery.timeout.ms
    enable.auto.commit enable.auto.offset.store enable.gapless.guarantee enable.idempotence enable.metrics.push
    enable.partition.eof enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
    enabled_events fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes
    fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type
    group.remote.assignor heartbeat.interval.ms https.ca.location internal.termination.signal isolation.level
    linger.ms log.connection.close log.queue log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    message.copy.max.bytes message.max.bytes message.send.max.retries message.timeout.ms metadata.broker.list
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy msg_order_cmp
    offset.store.method offset.store.path offset.store.sync.interval.ms partition.assignment.strategy partitioner
    plugin.library.paths produce.offset.report queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages
    queuing.strategy receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms request.required.acks request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    sasl.kerberos.keytab sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name
    sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.id sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.protocol session.timeout.ms
    share.acknowledgement.mode socket.blocking.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable
    socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.certificate.location ssl.cipher.suites ssl.crl.location
    ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location
    ssl.keystore.location ssl.providers ssl.sigalgs.list statistics.interval.ms sticky.partitioning.linger.ms
    topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    transaction.timeout.ms transactional.id
    """.split()  # noqa: SIM905
)
"""All other librdkafka 2.16 properties with text or number values."""

# Spark properties a service may need, by full name. Any other is passed to Spark only after its JVM has started.
_SPARK = re.compile(
    r"""spark\.(
    app\.name | master | home | log\.level | local\.dir | default\.parallelism | files | archives | blockManager\.port
    | jars(\.(packages|excludes|ivy|ivySettings|repositories))? | port\.maxRetries | decommission\.enabled
    | submit\.(deployMode|pyFiles) | pyspark\.(driver\.)?python | excludeOnFailure\.enabled
    | task\.(cpus|maxFailures|reaper\.(enabled|killTimeout|pollingInterval|threadDump))
    | speculation(\.(interval|multiplier|quantile))? | locality\.wait(\.(node|process|rack))?
    | scheduler\.(mode|minRegisteredResourcesRatio|maxRegisteredResourcesWaitingTime|listenerbus\.eventqueue\.capacity)
    | memory\.(fraction|storageFraction|offHeap\.(enabled|size)) | rpc\.(message\.maxSize|askTimeout|lookupTimeout)
    | python\.(daemon\.module|use\.daemon|worker\.(module|memory|reuse|faulthandler\.enabled)|profile(\.dump)?)
    | ui\.(enabled|port|showConsoleProgress|killEnabled|retained(Jobs|Stages|Tasks)|reverseProxy(Url)?
        |liveUpdate\.(period|minFlushPeriod)|prometheus\.enabled)
    | eventLog\.(enabled|dir|overwrite|compress|compression\.codec|rolling\.(enabled|maxFileSize))
    | dynamicAllocation\.(enabled|minExecutors|maxExecutors|initialExecutors|executorIdleTimeout)
    | (driver|executor)\.(cores|instances|memory|memoryOverhead|memoryOverheadFactor|host|port|bindAddress|maxResultSize
        |heartbeatInterval|pyspark\.memory|blockManager\.port|extraClassPath|extraLibraryPath|userClassPathFirst
        |maxNumFailures|failuresValidityInterval)
    | executorEnv\.(MALLOC_(TRIM_THRESHOLD_|MMAP_THRESHOLD_|ARENA_MAX)|ARROW_DEFAULT_MEMORY_POOL|NUMBA_CACHE_DIR
        |(OPENBLAS|OMP|NUMBA)_NUM_THREADS)
    | authenticate(\.(enableSaslEncryption|secretBitLength|secret(\.driver|\.executor)?\.file))?
    | network\.(timeout|timeoutInterval|crypto\.(enabled|cipher|keyLength|saslFallback|authEngineVersion))
    | io\.(encryption\.(enabled|keySizeBits|keygen\.algorithm)|compression\.codec)
    | kerberos\.(keytab|principal) | ssl\.((ui|rpc|fs|historyServer)\.)?(enabled|port|protocol|keyStore|trustStore)
    | kubernetes\.(namespace|context|container\.image(\.pullPolicy|\.pullSecrets)?
        |authenticate\.(driver\.|executor\.)?serviceAccountName
        |(driver|executor)\.(pod\.name|podTemplateFile|podTemplateContainerName|disableConfigMap|request\.cores|limit\.cores
            |service\.(deleteOnTermination|publishNotReadyAddresses)|ownPersistentVolumeClaim|reusePersistentVolumeClaim))
    )""",
    re.VERBOSE,
)
JAVA_OPTIONS = re.compile(r"spark\.(driver|executor)\.(extra|default)JavaOptions")
"""Spark properties that become process arguments."""
_HARMLESS_JAVA_OPTION = re.compile(r"-X\S*|--(add|enable)-\S+|@/\S+")

_OF_EACH_FORMAT = frozenset({"output", "output_format", "output_separator", "checks", "escape", "engine"})
OPTIONS: Mapping[str, frozenset[str]] = {
    "kafka": frozenset(),
    "none": frozenset(),
    "redis": frozenset({"url", "username"}),
    "mysql": frozenset({"host", "port", "user", "database", "table", "ssl_ca"}),
    "zookeeper": frozenset({"hosts", "root", "namespace", "position", "username"}),
    "hbase": frozenset({"host", "port", "table", "time_to_live_days", "transport", "protocol"}),
    "files": frozenset({"url", "user", "endpoint_url", "anon", "use_ssl", "use_https", "kerberos", "auto_mkdir"}),
    "idc-access-log": frozenset({"engine"}),
    "delimited": frozenset({"fields", "separator", "marker"}) | _OF_EACH_FORMAT,
    "csv": frozenset({"fields", "separator"}) | _OF_EACH_FORMAT,
    "json": frozenset({"fields"}) | _OF_EACH_FORMAT,
    "logfmt": frozenset({"fields"}) | _OF_EACH_FORMAT,
    "regex": frozenset({"pattern", "log_format"}) | _OF_EACH_FORMAT,
}
"""The options of built-in stores and parsers that hold no secret; those of other packages are unknown."""
OPTION_SECRETS = frozenset({"password", "passphrase", "key", "secret", "token"})
"""The options of built-in stores that are secrets."""
_PARAMETERS = frozenset({"db", "protocol", "timeout", "socket_timeout", "socket_connect_timeout", "max_connections"})
"""The URL query parameters that hold no secret."""

# Texts up to this length are not masked in messages: hiding every 5 would leave nothing readable.
SHORT = 3
_URL = re.compile(r"\b[\w+.-]+://[^\s\"'<>]+")
# A local URL has no user, but in a list such as spark.jars, those after it may. `a` and `b` of `file://a,https://b`.
_LOCAL_THEN_ANOTHER = re.compile(r"(/[^?#]*?,)(\s*[\w+.-]+://.*)", re.DOTALL)
_IN_A_QUERY = re.compile(r"(?<=[?&])[\w.~%-]+=[^\s&\"'<>]+")


def shown_property(section: str, name: str, value: str) -> str:
    """Return what may be shown of a property; the section is `spark` or one of librdkafka's."""
    if section == "spark":
        java = bool(JAVA_OPTIONS.fullmatch(name)) and all(map(_HARMLESS_JAVA_OPTION.fullmatch, value.split()))
        return shown_url(value) if java or _SPARK.fullmatch(name) else MASK
    known = name in KAFKA or (name.endswith(".file") and name.removesuffix(".file") in KAFKA | KAFKA_SECRETS)
    return shown_url(value) if known else MASK


def shown_option(plugin: str, name: str, value: object) -> Any:  # noqa: ANN401  # whatever was written
    option = name.replace(".", "_").replace("-", "_")
    known = OPTIONS.get(plugin, frozenset())
    path = option.removesuffix("_file") if option.endswith("_file") else ""
    if option not in known and not (plugin in OPTIONS and path in known | OPTION_SECRETS):
        return MASK
    return shown_url(value) if isinstance(value, str) and "url" in option else value


def hidden(plugin: str, options: Mapping[str, object]) -> list[str]:
    """Return the secret texts among a store's options, to mask in its errors."""
    texts = ((name, value) for name, value in options.items() if isinstance(value, str) and len(value) > SHORT)
    return [value for name, value in texts if shown_option(plugin, name, value) == MASK]


def hint(name: str) -> str:
    """Suggest the librdkafka property closest to an unknown name; return nothing if none is close."""
    if name.removesuffix(".file") in KAFKA | KAFKA_SECRETS:
        return ""
    near = get_close_matches(name, KAFKA | KAFKA_SECRETS, n=1, cutoff=0.8)
    return f"did you mean {near[0]}?" if near else ""


def shown_url(value: str) -> str:
    """Mask a URL's user, password, fragment and unknown parameters; return any other text unchanged."""
    scheme, slashes, rest = value.partition("://")
    if not slashes:
        return value
    if a_list := _LOCAL_THEN_ANOTHER.fullmatch(rest):
        return f"{scheme}://{a_list[1]}{shown_url(a_list[2])}"
    if not rest.startswith("/"):
        _, at, rest = rest.rpartition("@")
        rest = f"{MASK}@{rest}" if at else rest
    rest, sharp, _ = rest.partition("#")
    rest, query, parameters = rest.partition("?")
    shown = "&".join(map(_parameter, parameters.split("&"))) if query else ""
    return f"{scheme}://{rest}{query}{shown}{sharp}{MASK if sharp else ''}"


def _parameter(text: str) -> str:
    name, equals, _ = text.partition("=")
    if name in _PARAMETERS:
        return text
    return f"{name}={MASK}" if equals else MASK


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Mask these secrets, also in their URL-encoded forms, and the secret parts of URLs in a text."""
    for secret in filter(None, secrets):
        for form in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret)):
            text = text.replace(form, MASK)
    if "://" in text:
        text = _URL.sub(lambda found: shown_url(found[0]), text)
    return _IN_A_QUERY.sub(lambda found: _parameter(found[0]), text)
