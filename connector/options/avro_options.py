"""The options of records whose values, and perhaps keys, are Avro with a schema of a registry."""

import enum
from dataclasses import dataclass
from typing import Literal

from connector.errors import OptionError
from connector.options.given_options import INT32_MAX, GivenOptions, bad_option
from connector.options.registry_names import REGISTRY_KEYS
from connector.options.registry_options import RegistryOptions, given_names, parse_registry

Part = Literal["key", "value"]

FORMATS = ("avro", "binary")

_SOURCE_ONLY = ("mode", "value.schema.evolution", "value.schema.subject", "key.schema.subject")
_SINK_ONLY = (
    "value.subject.name.strategy",
    "key.subject.name.strategy",
    "value.schema",
    "key.schema",
    "use.latest.version",
    "auto.register.schemas",
    "normalize.schemas",
)
_BOTH = ("value.schema.version", "key.schema.version")

MAX_SUBJECT_LENGTH = 2_000


class OnDamage(enum.Enum):
    """How a source goes on at a record that can't be decoded."""

    FAILFAST = "failfast"
    DEAD_LETTER = "dead-letter"
    PERMISSIVE = "permissive"


class SubjectNames(enum.Enum):
    """How the subject of a schema is named: Confluent's strategies."""

    TOPIC = "topic"
    RECORD = "record"
    TOPIC_RECORD = "topic-record"

    def subject(self, topic: str, part: Part, record_name: str | None) -> str:
        """OptionError for a schema without a name where the strategy needs one."""
        if self is SubjectNames.TOPIC:
            return f"{topic}-{part}"
        if record_name is None:
            raise OptionError(
                "BAD_OPTION",
                f"'{part}.subject.name.strategy' is {self.value}, and the schema has no name: only "
                "records, enums and fixed have one; use the strategy topic",
            )
        return record_name if self is SubjectNames.RECORD else f"{topic}-{record_name}"


_STRATEGIES = {
    "topic": SubjectNames.TOPIC,
    "topicnamestrategy": SubjectNames.TOPIC,
    "record": SubjectNames.RECORD,
    "recordnamestrategy": SubjectNames.RECORD,
    "topic-record": SubjectNames.TOPIC_RECORD,
    "topicrecordnamestrategy": SubjectNames.TOPIC_RECORD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPart:
    """Which schema the columns of keys or values are of."""

    subject: str | None
    """None: the topic's, `T-value` or `T-key`."""

    version: int | None
    """None: the latest when the query begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSourceOptions:
    registry: RegistryOptions
    value: ReadPart
    key: ReadPart | None
    """None: keys are bytes."""

    mode: OnDamage
    may_evolve: bool
    """Whether a stream may go on with another schema when it is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """Which schema keys or values are written in."""

    names: SubjectNames
    schema: str | None
    """The schema as text; None: as the others of these say, or of the columns of the rows."""

    version: int | None
    """The version of the subject to write in; None: no particular one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSinkOptions:
    registry: RegistryOptions
    value: WrittenPart
    key: WrittenPart | None
    """None: keys are bytes."""

    use_latest: bool
    """Whether rows are written in the latest version of the subject, and none is registered."""

    registers: bool
    """Whether a schema that the subject does not have is registered."""

    normalizes: bool


def parse_avro_source(given: GivenOptions) -> AvroSourceOptions | None:
    """None where values are bytes. OptionError for options that don't go together."""
    if not _is_avro(given, (*_SOURCE_ONLY, *_BOTH)):
        return None
    is_keyed = given.choice("key.format", FORMATS) == "avro"
    _check_key(given, is_keyed, ("key.schema.subject", "key.schema.version"))
    mode = given.choice("mode", [each.value for each in OnDamage])
    evolution = given.choice("value.schema.evolution", ("none", "restart"))
    return AvroSourceOptions(
        registry=parse_registry(given),
        value=_read_part(given, "value"),
        key=_read_part(given, "key") if is_keyed else None,
        mode=OnDamage(mode or "failfast"),
        may_evolve=evolution == "restart",
    )


def parse_avro_sink(given: GivenOptions, *, topic: str | None) -> AvroSinkOptions | None:
    """None where values are bytes. OptionError for options that don't go together."""
    if not _is_avro(given, (*_SINK_ONLY, *_BOTH)):
        return None
    if topic is None:
        raise OptionError(
            "MISSING_OPTION", "'value.format=avro' needs 'topic': all rows have one schema"
        )
    is_keyed = given.choice("key.format", FORMATS) == "avro"
    names = ("key.subject.name.strategy", "key.schema", "key.schema.version")
    _check_key(given, is_keyed, names)
    use_latest = given.boolean("use.latest.version", default=False)
    registers = given.boolean("auto.register.schemas", default=not use_latest)
    if use_latest and registers:
        raise OptionError(
            "BAD_OPTION",
            "'auto.register.schemas' and 'use.latest.version' are both true: leave one of them out",
        )
    options = AvroSinkOptions(
        registry=parse_registry(given),
        value=_written_part(given, "value", use_latest=use_latest),
        key=_written_part(given, "key", use_latest=use_latest) if is_keyed else None,
        use_latest=use_latest,
        registers=registers,
        normalizes=given.boolean("normalize.schemas", default=False),
    )
    if given.text("createTopic") is not None:
        raise OptionError(
            "BAD_OPTION",
            "'createTopic' makes a typed topic, and value.format=avro writes records: leave one of "
            "them out",
        )
    return options


def _is_avro(given: GivenOptions, names: tuple[str, ...]) -> bool:
    if given.choice("value.format", FORMATS) == "avro":
        return True
    if given.choice("key.format", FORMATS) == "avro":
        raise OptionError("BAD_OPTION", "'key.format=avro' needs value.format=avro: set it, too")
    for name in given_names(given, (*names, *REGISTRY_KEYS)):
        raise OptionError(
            "MISSING_OPTION", f"'{name}' is for Avro: set value.format=avro, or leave it out"
        )
    return False


def _check_key(given: GivenOptions, is_keyed: bool, names: tuple[str, ...]) -> None:
    if not is_keyed:
        for name in given_names(given, names):
            raise OptionError(
                "MISSING_OPTION", f"'{name}' is for keys in Avro: set key.format=avro, too"
            )


def _read_part(given: GivenOptions, part: Part) -> ReadPart:
    name = f"{part}.schema.subject"
    subject = given.text(name)
    if subject is not None and not 0 < len(subject) <= MAX_SUBJECT_LENGTH:
        raise bad_option(name, f"a name of 1 to {MAX_SUBJECT_LENGTH} characters", subject)
    return ReadPart(subject=subject, version=_version(given, part))


def _written_part(given: GivenOptions, part: Part, *, use_latest: bool) -> WrittenPart:
    name = f"{part}.subject.name.strategy"
    text = given.text(name)
    # Of a class of Java only the last part of its name counts.
    names = None if text is None else _STRATEGIES.get(text.strip().lower().rpartition(".")[2])
    if text is not None and names is None:
        raise bad_option(name, "topic, record or topic-record", text)
    schema, version = given.text(f"{part}.schema"), _version(given, part)
    names = names or SubjectNames.TOPIC
    chosen = [
        each
        for each, is_given in (
            (f"{part}.schema", schema is not None),
            (f"{part}.schema.version", version is not None),
            ("use.latest.version", use_latest),
        )
        if is_given
    ]
    if len(chosen) > 1:
        raise OptionError(
            "BAD_OPTION",
            f"'{chosen[0]}' and '{chosen[1]}' both say what schema to write in: leave one out",
        )
    if names is not SubjectNames.TOPIC and schema is None and (version or use_latest):
        raise OptionError(
            "BAD_OPTION",
            f"'{name}' is {names.value}, so that the subject follows from the schema's name: give "
            f"'{part}.schema', or leave out '{chosen[0]}'",
        )
    return WrittenPart(names=names, schema=schema, version=version)


def _version(given: GivenOptions, part: Part) -> int | None:
    name = f"{part}.schema.version"
    if (given.text(name) or "").strip().lower() == "latest":
        return None
    return given.integer(name, low=1, high=INT32_MAX)
