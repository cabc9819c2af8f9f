"""
What a user can set: declared once here, read once at the edge, passed on as one frozen value.

Precedence: `--set key=value`, then the environment (`WINNOW_SOURCE__TOPICS`), then the file, then the default. Keys
are written as in the file, with dots; sections nest. `kafka` and `spark` take their owners' names verbatim,
`parser` its parser's options.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from app.errors import ConfigError
from app.kafka import properties as kafka_properties
from app.kafka.properties import is_secret, is_secret_file
from app.model import Guarantee
from app.spark import properties as spark_properties

ENV_PREFIX = "WINNOW_"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(value: object) -> object:
    """Read `500ms`, `30s`, `5m`, `1h` or a plain number of seconds."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*([0-9.]+)\s*(ms|s|m|h)?\s*", value)):
        return float(match[1]) * _UNITS[match[2] or "s"]
    return value


def _names(value: object) -> object:
    """Read `a,b` as a list of two."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _text(value: object) -> object:
    """Write YAML's true, false and numbers as librdkafka and Spark expect them."""
    if isinstance(value, dict):
        return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}
    return value


Seconds = Annotated[float, BeforeValidator(_seconds)]
Properties = Annotated[dict[str, str], BeforeValidator(_text)]


class Section(BaseModel):
    """A part of the configuration; a key is its field's name with dots."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=lambda name: name.replace("_", "."), validate_default=True
    )


class Source(Section):
    """Where raw lines come from."""

    topics: Annotated[tuple[str, ...], BeforeValidator(_names)] = Field(
        default=(), description="the source topics, by name"
    )
    topics_pattern: str | None = Field(
        default=None, description="a regular expression that whole topic names match; new ones join in `round.interval`"
    )
    format: Literal["raw", "flume-avro", "auto"] = Field(
        default="raw",
        description="`raw` lines, Flume's Avro envelope (`flume-avro`), or either, record by record (`auto`)",
    )

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if bool(self.topics) == bool(self.topics_pattern):
            msg = "set either topics or topics.pattern"
            raise ValueError(msg)
        try:
            re.compile(self.topics_pattern or "")
        except re.error as error:
            msg = f"topics.pattern is not a regular expression: {error}"
            raise ValueError(msg) from None
        return self


class Sink(Section):
    """Where cleansed lines go."""

    topic: str = Field(description="the topic for cleansed lines; partition = source partition mod its partitions")


class DeadLetters(Section):
    """Where rejected records go."""

    topic: str = Field(description="the topic for rejected records, unchanged, with `__connect.errors.*` headers")


class From(Section):
    """A point in time to start from."""

    timestamp: int = Field(ge=0, description="milliseconds since the epoch")


class ParserChoice(BaseModel):
    """Which parser, and its options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(default="idc-access-log", description="a parser's name; every other key here is its option")

    @property
    def options(self) -> dict[str, object]:
        """The keys beside `name`."""
        return dict(self.model_extra or {})


class Config(Section):
    """All of it."""

    group_id: str = Field(min_length=1, description="the consumer group whose offsets tell what is done")
    source: Source
    sink: Sink
    dead_letters: DeadLetters
    delivery_guarantee: Guarantee = Field(
        default=Guarantee.EXACTLY_ONCE, description="`exactly-once` or `at-least-once`"
    )
    starting_offsets: Literal["earliest", "latest", "error"] | From = Field(
        default="earliest",
        description="where to begin where the group has no offset: `earliest`, `latest`, `error`, `{timestamp: ms}`",
    )
    out_of_range: Literal["error", "earliest", "latest"] = Field(
        default="error", description="what to do when records were deleted before they were read"
    )
    parser: ParserChoice = Field(default=ParserChoice(), description="the parser and its options")
    round_interval: Seconds = Field(
        default=10.0,
        ge=1,
        le=3600,
        description="how often to look whether partitions must be shared out anew; if not, tasks go on without a pause",
    )
    commit_interval: Seconds = Field(
        default=0.5,
        ge=0.01,
        le=60,
        description="how often each partition commits output and offset together; more rarely where hundreds catch up",
    )
    transaction_timeout: Seconds = Field(
        default=60.0, ge=10, le=900, description="when the broker aborts a transaction whose owner went silent"
    )
    kafka: Properties = Field(description="librdkafka's names, verbatim; `NAME.file` reads the value from a file")
    spark: Properties = Field(
        default={"spark.master": "local[*]"}, description="Spark's names, verbatim; what spark-submit has set stands"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="what to log")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [*self._unusable_properties()]
        written = {self.sink.topic, self.dead_letters.topic}
        if len(written) == 1:
            problems.append("sink.topic and dead.letters.topic must differ: readers could not tell them apart")
        problems += [
            f"source.topics: {topic!r} is also written to: Winnow would feed itself"
            for topic in self.source.topics
            if topic in written
        ]
        if self.source.topics_pattern:
            problems += [
                f"source.topics.pattern matches {topic!r}, which is also written to: Winnow would feed itself"
                for topic in sorted(written)
                if re.fullmatch(self.source.topics_pattern, topic)
            ]
        if self.commit_interval * 4 > self.transaction_timeout:
            problems.append("transaction.timeout must be at least four times commit.interval")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _unusable_properties(self) -> Iterator[str]:
        if not any(key in self.kafka for key in ("bootstrap.servers", "metadata.broker.list")):
            yield "kafka: bootstrap.servers is missing (for example localhost:9092)"
        for key in self.kafka.keys() & kafka_properties.OWNED.keys():
            yield f"kafka.{key} cannot be set: {kafka_properties.OWNED[key]}"
        for key in self.kafka:
            if is_secret_file(key) and key.removesuffix(".file") in self.kafka:
                yield f"kafka.{key} and kafka.{key.removesuffix('.file')} are both set: keep the file"
        for key in self.spark.keys() & spark_properties.OWNED.keys():
            if self.spark[key] != "false":
                yield f"spark.{key.removeprefix('spark.')} must stay false: {spark_properties.OWNED[key]}"


def load(file: Path | None, assignments: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> Config:
    """
    Read the configuration from a file, the environment and `key=value` assignments.

    Raises:
        ConfigError: with every problem there is, not only the first.
    """
    tree: dict[str, Any] = {}
    _merge(tree, _from_file(file) if file else {})
    _merge(tree, _from_environment(os.environ if environ is None else environ))
    for assignment in assignments:
        _merge(tree, _from_assignment(assignment))
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(tuple(_problems(error))) from None


def described() -> Iterator[tuple[str, str, str]]:
    """Yield each key with its default and its meaning, for help and documents."""
    yield from _described(Config, "")


def masked(config: Config) -> dict[str, Any]:
    """Dump a configuration for people: secrets are replaced."""
    tree = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    tree["kafka"] = {key: "********" if is_secret(key) else value for key, value in tree["kafka"].items()}
    return tree


def _described(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _described(kind, f"{key}.")
        else:
            default = "" if field.is_required() else field.get_default()
            yield key, _shown(default), field.description or ""


def _shown(default: object) -> str:
    match default:
        case None | ():
            return ""
        case float():
            return f"{default:g}s"
        case dict():
            return ", ".join(f"{key}: {value}" for key, value in default.items())
    return str(default)


def _from_file(file: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError((f"{file}: {error.strerror}",)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError((f"{file} is not YAML: {error}",)) from None
    if not isinstance(tree, dict):
        raise ConfigError((f"{file} must hold keys and values, such as `group.id: idc-cleansing`",))
    return tree


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX):
            path = [_dotted(part) for part in name.removeprefix(ENV_PREFIX).split("__")]
            _merge(tree, _nested(path, _value(environ[name])))
    return tree


def _dotted(part: str) -> str:
    """Write `BOOTSTRAP_SERVERS` as `bootstrap.servers`; a name in mixed case (Spark's) keeps its case."""
    return (part.lower() if part.isupper() else part).replace("_", ".")


def _from_assignment(assignment: str) -> dict[str, Any]:
    key, equals, value = assignment.partition("=")
    if not equals:
        raise ConfigError((f"--set {assignment}: write it as key=value",))
    return _nested(list(_path(key.strip(), Config)), _value(value))


def _path(key: str, model: object) -> Iterator[str]:
    """Split a dotted key into sections: names may hold dots themselves, so the declared names decide."""
    keys = _keys(model)
    for alias, kind in keys.items():
        if key.startswith(f"{alias}.") and key not in keys:
            yield alias
            rest = key.removeprefix(f"{alias}.")
            yield from _path(rest, kind) if _keys(kind) else [rest]
            return
    yield key


def _value(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _nested(path: list[str], value: object) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    return value  # type: ignore[return-value]  # a path has at least one name


def _merge(tree: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(tree.get(key), dict):
            _merge(tree[key], value)
        else:
            tree[key] = dict(value) if isinstance(value, Mapping) else value


def _problems(error: ValidationError) -> Iterator[str]:
    for detail in error.errors():
        where = ".".join(str(part) for part in detail["loc"] if part != "From" and not str(part).startswith("literal["))
        yield from (f"{where}: {line}" if where else line for line in _problem(detail).splitlines())


def _problem(detail: ErrorDetails) -> str:
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown key{_nearest(detail)}"
        case "missing":
            return "is missing"
        case "value_error":
            return str(detail["ctx"]["error"])
    return f"{detail['msg']}, got {detail['input']!r}"


def _nearest(detail: ErrorDetails) -> str:
    *sections, wrong = (str(part) for part in detail["loc"])
    model: object = Config
    for section in sections:
        model = _keys(model).get(section)
    known = list(_keys(model))
    near = difflib.get_close_matches(wrong, known, n=1, cutoff=0.5)
    return f"; did you mean {'.'.join([*sections, near[0]])}?" if near else f"; known here: {', '.join(known)}"


def _keys(model: object) -> dict[str, object]:
    """List a section's keys as a user writes them, with what each holds."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return {}
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}
