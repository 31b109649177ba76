"""The schema that rows are written in, found or registered where the writer is made, and how the
columns of the rows fit it.

Every column is a field of the value but `_key`, `_partition`, `_headers` and `_deleted`. Columns
are matched by their names, upper and lower case aside, and may be of narrower types, as those of a
typed topic.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.avro_types import AvroColumn, avro_columns, is_nullable, whole_type
from connector.errors import OptionError
from connector.options.avro_options import AvroSinkOptions, Part, WrittenPart
from connector.options.sink_options import SinkOptions
from connector.registries import AvroText, avro_text, registry_errors, registry_for
from connector.schema import HEADERS_DDL, take_origin
from connector.sink.avro.derived_schema import derived_schema
from connector.sink.typed.column_matching import holds_all
from connector.typed_columns import (
    DELETED,
    HEADERS,
    KEY,
    METADATA_COLUMNS,
    PARTITION,
    column_type_of,
)
from storage_engine.core.schemas.languages import Schema, SchemaType
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.column_types import ddl_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from storage_engine.client.schema_registry import SchemaRegistry

_META = {
    KEY: ("binary", "string"),
    PARTITION: ("int",),
    HEADERS: (HEADERS_DDL,),
    DELETED: ("boolean",),
}
"""The columns that are no fields of the value, with their types."""

MAX_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenAvro:
    """A schema to write in, and the columns with the fields, by the fields' names."""

    schema_id: int
    text: AvroText
    columns: tuple[AvroColumn, ...]
    """The fields that the rows have; of a key as a whole, and of a schema that is no record, one.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSink:
    """The schemas of the records that rows become. It is pickled into tasks."""

    topic: str
    value: WrittenAvro
    key: WrittenAvro | None
    required: tuple[AvroColumn, ...]
    """The columns that may not be null; none where rows may say that their key is gone."""


def avro_sink(schema: "StructType", options: SinkOptions) -> AvroSink:
    """How rows of `schema` are written. OptionError where they can't be; ConnectorError where the
    registry refuses the schema, or is away."""
    avro, topic = options.avro, options.topic
    assert avro is not None and topic is not None
    fields = {field.name.lower(): (field.name, field.dataType) for field in schema.fields}
    if len(fields) != len(schema.fields):
        raise OptionError(
            "BAD_COLUMN", "two columns to be written have the same name, upper and lower case aside"
        )
    kinds = {name: kind for name, (_, kind) in fields.items()}
    take_origin(kinds, () if options.origin is None else options.origin.columns)
    _check_meta(kinds, keyed=avro.key is not None)
    given = {
        fields[name][0]: column_type_of(fields[name][0], kind)
        for name, kind in kinds.items()
        if name not in _META
    }
    registry = registry_for(avro.registry)
    value = _written_value(registry, topic, avro, given)
    key = None if avro.key is None else _written_key(registry, topic, avro, kinds)
    required = tuple(each for each in value.columns if not each.nullable)
    return AvroSink(
        topic=topic, value=value, key=key, required=() if DELETED in kinds else required
    )


def _check_meta(kinds: "Mapping[str, DataType]", *, keyed: bool) -> None:
    for name, kind in kinds.items():
        if name in METADATA_COLUMNS and name not in _META:
            raise OptionError(
                "BAD_COLUMN",
                f"the column '{name}' says where a row was read, and can't be written: drop it, or "
                "name it in idempotentKey",
            )
        wanted = _META.get(name)
        if wanted is None or (name == KEY and keyed):
            continue
        if kind.simpleString() not in wanted:
            raise OptionError(
                "BAD_COLUMN",
                f"the column '{name}' must be {' or '.join(wanted)}, not {kind.simpleString()}; "
                "cast it",
            )
    if keyed and KEY not in kinds:
        raise OptionError(
            "BAD_COLUMN", f"'key.format=avro' needs the column '{KEY}', and the rows have none"
        )


def _written_value(
    registry: "SchemaRegistry",
    topic: str,
    avro: AvroSinkOptions,
    given: Mapping[str, types.ColumnType],
) -> WrittenAvro:
    if not given:
        raise OptionError("BAD_COLUMN", "the rows have no column for the value: add one")
    rows = types.StructColumn(
        tuple(types.StructColumnField(name, kind) for name, kind in given.items())
    )
    schema_id, text = _schema(registry, topic, avro, avro.value, "value", rows)
    with registry_errors():
        columns = avro_columns(text.parsed(), rows)
    _check_fields(topic, columns, given)
    named = {name.lower() for name in given}
    return WrittenAvro(
        schema_id=schema_id,
        text=text,
        columns=tuple(each for each in columns if each.name.lower() in named),
    )


def _written_key(
    registry: "SchemaRegistry",
    topic: str,
    avro: AvroSinkOptions,
    kinds: "Mapping[str, DataType]",
) -> WrittenAvro:
    assert avro.key is not None
    given = column_type_of(KEY, kinds[KEY])
    schema_id, text = _schema(registry, topic, avro, avro.key, "key", given)
    with registry_errors():
        schema = text.parsed()
        wanted = whole_type(schema, given)
    if not holds_all(wanted, given):
        raise _other_type(topic, KEY, given, wanted)
    column = AvroColumn(name=KEY, type=wanted, nullable=is_nullable(schema, schema.root))
    return WrittenAvro(schema_id=schema_id, text=text, columns=(column,))


def _schema(
    registry: "SchemaRegistry",
    topic: str,
    avro: AvroSinkOptions,
    part: WrittenPart,
    name: Part,
    given: types.ColumnType,
) -> tuple[int, AvroText]:
    """The id and the schema that the options mean, registered where they say so."""
    with registry_errors():
        if part.version is not None or avro.use_latest:
            subject = part.names.subject(topic, name, None)
            found = (
                registry.latest(subject)
                if part.version is None
                else registry.version(subject, part.version)
            )
            return found.schema_id, avro_text(registry, found.schema)
        schema = Schema(
            schema_type=SchemaType.AVRO,
            text=derived_schema(given, name) if part.schema is None else part.schema,
        )
        text = avro_text(registry, schema)
        subject = part.names.subject(topic, name, _record_name(text))
        if avro.registers:
            return registry.register(subject, schema, normalize=avro.normalizes), text
        known = registry.find(subject, schema, normalize=avro.normalizes)
    if known is None:
        raise OptionError(
            "NO_SCHEMA",
            f"the subject '{subject}' does not have the schema of the rows, and "
            "'auto.register.schemas' is false: register it, or set use.latest.version=true",
        )
    return known.schema_id, text


def _record_name(text: AvroText) -> str | None:
    schema = text.parsed()
    root = schema.resolve(schema.root)
    return getattr(root, "full_name", None)


def _check_fields(
    topic: str, columns: Sequence[AvroColumn], given: Mapping[str, types.ColumnType]
) -> None:
    """OptionError BAD_COLUMN unless rows with the columns `given` fit the schema."""
    by_name = {each.name.lower(): each for each in columns}
    if len(by_name) != len(columns):
        raise OptionError(
            "BAD_SCHEMA",
            f"the schema of the topic '{topic}' has fields that differ by upper and lower case "
            "alone, which Spark takes for one: write values that are encoded already",
        )
    for name, kind in given.items():
        column = by_name.get(name.lower())
        if column is None:
            names = [each.name for each in columns]
            nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            shown = ", ".join(names[:MAX_SHOWN]) + ", …" * (len(names) > MAX_SHOWN)
            hint = f"did you mean '{nearest[0]}'?" if nearest else f"it has {shown}"
            raise OptionError(
                "BAD_COLUMN",
                f"the schema of the topic '{topic}' has no field '{name}'; {hint}",
            )
        if not holds_all(column.type, kind):
            raise _other_type(topic, name, kind, column.type)
    named = {name.lower() for name in given}
    for each in columns:
        if not each.nullable and each.name.lower() not in named:
            raise OptionError(
                "BAD_COLUMN",
                f"the field '{each.name}' in the schema of the topic '{topic}' can't be null, and "
                "the rows don't have it: add it",
            )


def _other_type(
    topic: str, name: str, given: types.ColumnType, wanted: types.ColumnType
) -> OptionError:
    return OptionError(
        "BAD_COLUMN",
        f"the column '{name}' is {ddl_of(given)}, and in the schema of the topic '{topic}' it is "
        f"{ddl_of(wanted)}: cast it",
    )
