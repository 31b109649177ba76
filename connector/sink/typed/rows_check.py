"""Decides, where the writer is made, whether rows are records or have the columns of a typed topic,
and refuses those that fit neither. It makes the topic where `createTopic` asks for it.
"""

from typing import TYPE_CHECKING

from connector.connections import cluster_for
from connector.errors import OptionError, in_one_line
from connector.options.sink_options import SinkOptions, TopicCreation
from connector.schema import check_sink_schema, take_origin
from connector.topic_schemas import is_remembered, known_schema_or_older, known_schemas
from connector.typed_columns import METADATA_COLUMNS, column_type_of
from storage_engine.core.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from connector.topic_schemas import TypedSink
    from storage_engine.client.topic_schemas import KnownSchema

RECORD_COLUMNS = frozenset({"key", "value", "headers", "topic", "partition"})
"""Rows with other columns are meant for a typed topic."""

SCHEMA_SETTING = "headrace.schema"
"""The topic's setting that holds its schema."""

TYPED_COMPRESSIONS = ("none", "lz4", "zstd")
"""The values of `compression.type` that columns of typed topics can have."""


def check_rows(schema: "StructType", options: SinkOptions) -> "TypedSink | None":
    """The typed topic that rows of `schema` go to; None where they are records. OptionError where
    they can't be written."""
    origin = () if options.origin is None else options.origin.columns
    if options.topic is None:
        # Each row names its topic. As records they can go to typed topics, too, as JSON.
        check_sink_schema(schema, topic_option=None, origin=origin)
        return None
    with in_one_line():
        exists, known = _look_up(options, options.topic)
        if not exists and options.creation is not None:
            known = _create(options, options.topic, options.creation, _columns(schema, origin))
            exists = True
    try:
        return _checked(schema, options, options.topic, known, exists=exists)
    except OptionError:
        # What is remembered may be older than the change of the topic that the rows are for.
        with in_one_line():
            newer = _look_again(options, options.topic) if exists else known
        if newer == known:
            raise
    return _checked(schema, options, options.topic, newer, exists=exists)


def _checked(
    schema: "StructType",
    options: SinkOptions,
    topic: str,
    known: "KnownSchema | None",
    *,
    exists: bool,
) -> "TypedSink | None":
    origin = () if options.origin is None else options.origin.columns
    if known is None:
        _check_records(schema, options, origin, exists=exists)
        return None
    return _typed_sink(options, topic, known, _columns(schema, origin), origin)


def _look_up(options: SinkOptions, topic: str) -> "tuple[bool, KnownSchema | None]":
    """Whether the topic exists, and its schema."""
    if options.creation is not None and not is_remembered(options.connection, topic):
        # No use in waiting for one that is to be made.
        found = cluster_for(options.connection).metadata([topic])
        if found.errors.get(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False, None
    try:
        return True, known_schema_or_older(options.connection, topic)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return False, None


def _look_again(options: SinkOptions, topic: str) -> "KnownSchema | None":
    return known_schemas(options.connection, [topic], refresh=True)[topic]


def _check_records(
    schema: "StructType", options: SinkOptions, origin: tuple[str, ...], *, exists: bool
) -> None:
    if exists and options.creation is not None:
        raise OptionError(
            "BAD_OPTION",
            f"'createTopic' makes a topic with the columns of the rows, and '{options.topic}' "
            "exists already, without a schema: leave the option out, or write to another topic",
        )
    try:
        check_sink_schema(schema, topic_option=options.topic, origin=origin)
    except OptionError as error:
        if exists or RECORD_COLUMNS.issuperset(field.name.lower() for field in schema.fields):
            raise
        raise OptionError(
            error.code,
            f"{error.message}; the topic '{options.topic}' does not exist: with createTopic=true "
            "it is made with the columns of the rows",
        ) from None


def _columns(schema: "StructType", origin: tuple[str, ...]) -> "dict[str, DataType]":
    """The columns that are written, without those of `idempotentKey`."""
    by_lower_name = {field.name.lower(): field for field in schema.fields}
    if len({field.name.lower() for field in schema.fields}) != len(schema.fields):
        raise OptionError(
            "BAD_COLUMN", "two columns to be written have the same name, upper and lower case aside"
        )
    types = {name: field.dataType for name, field in by_lower_name.items()}
    take_origin(types, origin)
    return {by_lower_name[name].name: data_type for name, data_type in types.items()}


def _typed_sink(
    options: SinkOptions,
    topic: str,
    known: "KnownSchema",
    columns: "dict[str, DataType]",
    origin: tuple[str, ...],
) -> "TypedSink":
    from connector.sink.typed.column_matching import check_matching
    from connector.topic_schemas import TypedSink

    version = known.schema.latest
    check_matching(topic, version, columns, origin=origin)
    if options.compression not in TYPED_COMPRESSIONS:
        raise OptionError(
            "BAD_OPTION",
            f"'compression.type' is {options.compression}, and the columns of the typed topic "
            f"'{topic}' can be {', '.join(TYPED_COMPRESSIONS)}: set one of these",
        )
    if options.creation is not None and options.creation.key:
        key = [each.name for each in known.schema.key_columns(version)]
        if [name.lower() for name in key] != [name.lower() for name in options.creation.key]:
            raise OptionError(
                "BAD_OPTION",
                f"'topic.key' is {', '.join(options.creation.key)}, and the topic '{topic}' exists "
                f"with the key {', '.join(key) or '(none)'}: leave the option out, or write to "
                "another topic",
            )
    return TypedSink(
        topic=topic,
        topic_id=known.topic_id,
        schema=known.schema,
    )


def _create(
    options: SinkOptions, topic: str, creation: TopicCreation, columns: "dict[str, DataType]"
) -> "KnownSchema | None":
    """Makes the topic, unless another driver has just done so, and returns its schema. All columns
    but those of the key are nullable: the nullability of Spark's columns is seldom intended."""
    from storage_engine.client.admin.topics import BROKER_DEFAULT, create_topic
    from storage_engine.core.typed.topic_schema import ColumnSpec, new_schema

    specs = [
        ColumnSpec(name, column_type_of(name, data_type))
        for name, data_type in columns.items()
        if name.lower() not in METADATA_COLUMNS
    ]
    try:
        schema = new_schema(specs, creation.key)
    except ConfigError as error:
        raise OptionError(
            "BAD_COLUMN", f"the topic '{topic}' can't be made of the rows' columns: {error}"
        ) from None
    try:
        create_topic(
            cluster_for(options.connection),
            topic,
            creation.partitions or BROKER_DEFAULT,
            creation.replication_factor or BROKER_DEFAULT,
            {SCHEMA_SETTING: schema.to_json()},
        )
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return _look_again(options, topic)
