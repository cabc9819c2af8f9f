"""
Every configuration key: its name, type, default, limits and meaning, declared once.

Each key is checked here on its own. Rules between keys are in `app.config.rules`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from app.config.types import Names, Number, Properties, Seconds, Whole
from app.model import SOURCE_KEY, FilterRule, Guarantee, Partitioner, Plugin, SinkKafka
from app.rates import BUFFER_MEMORY, BreakerLimit, Rates
from app.times import no_milliseconds
from app.topics import PLACEHOLDER


def _regular_expression(pattern: str | None) -> str | None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"is not a regular expression ({error})") from None
    return pattern


def _topic(name: str) -> str:
    if not re.fullmatch(r"(?!\.{1,2}$)[\w.-]{1,249}", name, re.ASCII):
        allowed = "up to 249 letters (a to z), digits, dots, hyphens and underscores, but not . or .. alone"
        raise ValueError(f"names {name!r}, which no topic can be called: use {allowed}")
    return name


def _topics(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_topic, names))


# A host name or an IP address. A name with a port has one colon, an IPv6 address at least two.
_HOST = re.compile(r"[\w-]+(\.[\w-]+)*\.?|\[?[\da-f]*:[\da-f:.]*:[\da-f.]*\]?", re.ASCII | re.IGNORECASE)


def _hosts(names: tuple[str, ...]) -> tuple[str, ...]:
    wrong = [name for name in names if not _HOST.fullmatch(name)]
    if wrong:
        raise ValueError(f"names {wrong[0]!r}, which no request can use: write only a host name")
    return names


def _topic_template(name: str) -> str:
    if name.count("{topic}") != 1 or not re.fullmatch(r"[\w.-]*", name.replace("{topic}", ""), re.ASCII):
        raise ValueError("must contain {topic} once, and otherwise only characters that a topic name allows")
    return name


def _start(starting: str | FromTimestamp | FromDuration) -> str | FromTimestamp | FromDuration:
    if isinstance(starting, FromTimestamp) and (wrong := no_milliseconds(starting.timestamp)):
        raise ValueError(f"must be a time in milliseconds: {wrong}")
    return starting


Topic = Annotated[str, Field(min_length=1), AfterValidator(_topic)]

PROPERTY_SECTIONS = (("kafka",), ("sink", "kafka"), ("spark",))
"""The sections of librdkafka and Spark properties: taken verbatim, and possibly secret."""


class _Part(BaseModel):
    """A part of the configuration."""

    model_config = ConfigDict(frozen=True, validate_default=True)

    @property
    def options(self) -> dict[str, object]:
        """The keys that are not declared."""
        return dict(self.model_extra or {})

    @model_validator(mode="before")
    @classmethod
    def _with_sections(cls, value: object) -> object:
        """Add absent sections as empty ones, so that a problem names the key that is missing in them."""
        written = {} if value is None else value
        if not isinstance(written, dict):
            return value
        return {name: {} for name, field in keys_of(cls).items() if keys_of(field.annotation)} | written


class Section(_Part, extra="forbid", alias_generator=lambda name: name.replace("_", ".")):
    """A part whose keys are all declared; a key is its field's name with dots for underscores."""


class Choice(_Part, extra="allow"):
    """A part that chooses a plugin by `name`; every other key is one of the plugin's options."""

    name: str

    @property
    def plugin(self) -> Plugin:
        return Plugin(self.name, self.options)


class Source(Section):
    """Where raw lines come from."""

    topics: Annotated[Names, AfterValidator(_topics)] = Field(default=(), description="the source topics, by name")
    topics_pattern: Annotated[str | None, AfterValidator(_regular_expression)] = Field(
        default=None,
        description="a regular expression for whole topic names; internal topics (`__…`) and those that Winnow creates "
        "never match; new topics join within one `round.interval`, or within three with `at-least-once`",
    )
    format: Literal["raw", "flume-avro", "auto"] = Field(
        default="raw",
        description="`raw` lines, Flume's Avro envelope (`flume-avro`), or either one per record (`auto`)",
    )
    flume_headers: Names = Field(
        default=(), description="the Flume event headers to copy to the record headers of cleansed lines"
    )


class Sink(Section):
    """Where cleansed lines go."""

    topic: Topic = Field(description="the topic for cleansed lines")
    key: str = Field(
        default=SOURCE_KEY,
        description="the key of each line: `source` keeps the key of its source record; any other name is a field of "
        "the parser's output, such as `houseid`",
    )
    partitioner: Partitioner = Field(
        default=Partitioner.SOURCE,
        description="the partition of each line: `source` is the source partition mod the number of sink partitions, "
        "which keeps the order of each source partition; `key` hashes the key as Java's producer does",
    )
    kafka: Properties = Field(
        default={},
        description="the properties of the cluster of the sink and the dead letters, if it is not the source's; see "
        "`kafka`",
    )


class DeadLetterBreaker(Section):
    """When too many dead letters block a partition."""

    ratio: Annotated[float | None, Field(ge=0, lt=1), Number] = Field(
        default=None,
        description="the share of dead letters above which a partition is blocked, such as `0.5`; off by default",
    )
    minimum: Whole = Field(
        default=1_000, ge=1, description="how many of a partition's records the window must hold before it can block"
    )
    window: Seconds = Field(default=60.0, ge=1, le=3600, description="the length of the window")

    @property
    def limit(self) -> BreakerLimit | None:
        return None if self.ratio is None else BreakerLimit(self.ratio, self.minimum, self.window)


class DeadLetterTopic(Section):
    """Where rejected records go."""

    topic: Topic = Field(
        description="the topic for rejected records: the original bytes and `__connect.errors.*` headers"
    )
    breaker: DeadLetterBreaker


class FromTimestamp(Section):
    """The time to start from, since the epoch."""

    timestamp: Whole = Field(ge=0, description="milliseconds")


class FromDuration(Section):
    """The time to start from, before the service's start."""

    by_duration: Seconds = Field(ge=0, allow_inf_nan=False, description="2h")


class Sample(Section):
    """A line and the result that the parser must give."""

    line: str = Field(description="the raw line, without an envelope")
    output: str | None = Field(default=None, description="the expected cleansed line")
    reason: str | None = Field(default=None, description="the expected reason for rejection")

    @model_validator(mode="after")
    def _expects_one_thing(self) -> Sample:
        if (self.output is None) == (self.reason is None):
            raise ValueError("must have either an output or a reason")
        return self


class ParserChoice(Choice):
    """The parser, its options and its samples."""

    name: str = Field(default="idc-access-log", description="the parser; every other key here is one of its options")
    samples: tuple[Sample, ...] = Field(
        default=(),
        description="lines with their expected results: a list such as `[{line: …, output: …}, {line: '', reason: "
        "empty}]`; `winnow check` tries them",
    )


class ParserPart(Section):
    """The part of the configuration that is enough to parse lines."""

    parser: ParserChoice


class StoreChoice(Choice):
    """The offset store and its options."""

    name: str = Field(
        default="kafka",
        description="where committed offsets are stored; `kafka` is the consumer group itself, which exactly-once "
        "needs; every other key here is one of the store's options",
    )


class MirrorChoice(Choice):
    """A store that gets a copy of the offsets."""


class Offsets(Section):
    """Where committed offsets are stored."""

    store: StoreChoice
    mirrors: tuple[MirrorChoice, ...] = Field(
        default=(),
        description="other stores that get a copy of each committed offset, for tools that read them: a list such as "
        "`[{name: redis, url: …}]`; a failing mirror never stops the service",
    )
    placeholder: Annotated[str, AfterValidator(_topic_template)] = Field(
        default=PLACEHOLDER,
        description="with `sink.kafka`: the empty topic on the sink's cluster under whose name a source topic's "
        "offsets are committed in the transaction; Winnow creates it",
    )


class FilterCondition(_Part, extra="allow"):
    """A field of the output, and a check with its parameter."""

    field: str = Field(description="a field of the parser's output")


class Filter(Section):
    """A rule that drops cleansed lines on purpose."""

    drop: FilterCondition | None = Field(default=None, description="drops the lines whose field passes the check")
    keep: FilterCondition | None = Field(default=None, description="drops all other lines")
    name: str = Field(
        default="",
        pattern="^[a-z0-9_-]{0,40}$",
        description="counts what it drops under this name; by default `drop-` or `keep-` and the field",
    )
    limit: Annotated[float | None, Field(gt=0, le=1), Number] = Field(
        default=None, description="the share of the records above which its drops are a warning"
    )

    @model_validator(mode="after")
    def _does_one_thing(self) -> Filter:
        if (self.drop is None) == (self.keep is None):
            raise ValueError("each must have either drop or keep")
        return self

    @property
    def rule(self) -> FilterRule:
        condition, does = (self.keep, "keep") if self.keep else (self.drop, "drop")
        assert condition is not None
        name = self.name or f"{does}-{condition.field}"
        return FilterRule(name, condition.field, condition.options, does == "keep", self.limit)


class Lineage(Section):
    """Whether cleansed lines name their source records."""

    headers: bool = Field(
        default=False,
        description="whether each line carries the header `winnow.source`: topic, partition and offset of its record",
    )


class Http(Section):
    """The driver's HTTP server: status page, metrics and health."""

    enabled: bool = Field(default=True, description="whether the driver serves its status over HTTP")
    address: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="the address to serve the status page, `/metrics`, `/healthz` and `/readyz` on; the image sets "
        "`0.0.0.0` (all addresses)",
    )
    port: Whole = Field(default=8090, ge=0, le=65535, description="the port; `0` picks a free one and logs it")
    allowed_hosts: Annotated[Names, AfterValidator(_hosts)] = Field(
        default=(),
        description="additional host names that requests may use, such as an ingress's; IP addresses, names without a "
        "dot, `http.address` and the machine's own name are always allowed",
    )


class Config(Section):
    """The whole configuration."""

    group_id: str = Field(min_length=1, description="the consumer group whose committed offsets record the progress")
    source: Source
    sink: Sink
    dead_letters: DeadLetterTopic
    delivery_guarantee: Guarantee = Field(
        default=Guarantee.EXACTLY_ONCE, description="`exactly-once` or `at-least-once`"
    )
    starting_offsets: Annotated[
        Literal["earliest", "latest", "error"] | FromTimestamp | FromDuration, AfterValidator(_start)
    ] = Field(
        default="earliest",
        description="where to start if the group has no offset: `earliest`, `latest`, `error`, `{timestamp: ms}`, "
        "`{by.duration: 2h}`; a partition that is added later starts at its beginning, and so does a topic that joins "
        "while the service runs",
    )
    out_of_range: Literal["error", "earliest", "latest", "nearest"] = Field(
        default="error",
        description="where to continue if the group's offset is outside the partition: `error` blocks the partition "
        "until an operator acts, `nearest` moves to the beginning if records were deleted and to the end if the log "
        "was truncated, `earliest` always to the beginning, `latest` always to the end",
    )
    offsets: Offsets
    lineage: Lineage
    parser: ParserChoice
    filter: tuple[Filter, ...] = Field(
        default=(),
        max_length=16,
        description="rules that drop cleansed lines on purpose, the first that drops a line counts it: a list such as "
        "`[{drop: {field: url, matches: ^http://health/}, limit: 0.5}]`",
    )
    round_interval: Seconds = Field(
        default=10.0,
        ge=1,
        le=3600,
        description="how often to check whether the partitions need a rebalance; if not, tasks continue",
    )
    commit_interval: Seconds = Field(
        default=0.5,
        ge=0.01,
        le=60,
        description="how often each partition commits its output and offset together; less often while hundreds of "
        "partitions catch up",
    )
    transaction_timeout: Seconds = Field(
        default=60.0, ge=10, le=900, description="how soon the broker aborts a transaction whose owner has gone silent"
    )
    max_rate_per_partition: Whole = Field(
        default=0, ge=0, description="the most records to read from a partition per second; `0` means no limit"
    )
    initial_rate: Whole = Field(
        default=0,
        ge=0,
        description="the same limit for the backlog that existed when the group started on the partition; later "
        "records are read at `max.rate.per.partition`",
    )
    buffer_memory: Whole = Field(
        default=BUFFER_MEMORY,
        ge=16 << 20,
        description="how many bytes a task may hold that Kafka has not acknowledged; a slot runs one task at a time",
    )
    generation: Whole = Field(
        default=0,
        ge=0,
        le=1_000_000_000,
        description="a service with a higher generation takes over from the running one, which exits; there is no gap",
    )
    handover_timeout: Seconds = Field(
        default=0.0,
        ge=0,
        le=3600,
        description="how long a service keeps working after SIGTERM so that another one can take over; it exits once "
        "that has happened",
    )
    kafka: Properties = Field(
        default={}, description="librdkafka properties, verbatim; `NAME.file` reads a secret from a file"
    )
    spark: Properties = Field(
        default={"spark.master": "local[*]"}, description="Spark properties, verbatim; those set by spark-submit win"
    )
    http: Http
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the lowest level to log"
    )

    @property
    def output_kafka(self) -> Mapping[str, str]:
        return SinkKafka(self.sink.kafka) if self.sink.kafka else self.kafka

    @property
    def filters(self) -> tuple[FilterRule, ...]:
        return tuple(each.rule for each in self.filter)

    @property
    def rates(self) -> Rates:
        return Rates(self.max_rate_per_partition, self.initial_rate)

    @property
    def mirrors(self) -> tuple[Plugin, ...]:
        """The stores that get copies; with `sink.kafka` also the source's cluster, where lag tools look."""
        lag_tools = (Plugin("kafka"),) if self.sink.kafka else ()
        return (*lag_tools, *(each.plugin for each in self.offsets.mirrors))

    @property
    def placeholder(self) -> str:
        """The template of the placeholder topics; empty without `sink.kafka`."""
        return self.offsets.placeholder if self.sink.kafka else ""


def keys_of(model: object) -> Mapping[str, FieldInfo]:
    """Return the declared keys of a section as users write them; empty for any other type."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return {}
    return {field.alias or name: field for name, field in model.model_fields.items()}


def declared(model: object = Config, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key that is not a section, by its full name."""
    for name, field in keys_of(model).items():
        if keys_of(field.annotation):
            yield from declared(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def placed(keys: tuple[Any, ...], model: object = Config) -> tuple[Any, ...]:
    """
    Return sections and a key by their declared names, because both may be written with dots or nested.

    `("sink.topic",)` becomes `("sink", "topic")`, and `("group", "id")` becomes `("group.id",)`. What follows a key
    that is no section, such as a property or an option of a parser, is left as it is.
    """
    known, (first, *inner) = keys_of(model), keys
    if not known or not isinstance(first, str):
        return keys
    longer = f"{first}.{inner[0]}" if inner else first
    if inner and (longer in known or (first not in known and any(each.startswith(f"{longer}.") for each in known))):
        return placed((longer, *inner[1:]), model)
    if first not in known and (name := next((each for each in known if first.startswith(f"{each}.")), "")):
        first, inner = name, [first.removeprefix(f"{name}."), *inner]
    return (first, *placed(tuple(inner), known[first].annotation)) if inner and first in known else (first, *inner)


def is_value(keys: tuple[Any, ...]) -> bool:
    """Return whether these placed keys lead to a declared key or a plugin's option: its value may be a section."""
    model: Any = Config
    for key in keys:
        known = keys_of(model)
        if key not in known:
            return bool(known) and issubclass(model, Choice)
        model = known[key].annotation
    return not keys_of(model) and keys not in PROPERTY_SECTIONS


def path_of(key: str) -> tuple[str, ...]:
    """Split a full name into sections and a key."""
    return placed((key,))


def is_property(keys: tuple[object, ...]) -> bool:
    """Return whether a key is a librdkafka or Spark property."""
    return any(len(keys) > len(each) and keys[: len(each)] == each for each in PROPERTY_SECTIONS)


def duration(seconds: float) -> str:
    """Format seconds as in the configuration."""
    return f"{seconds:g}s"
