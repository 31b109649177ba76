"""The schema in which a query reads Avro, its columns, and the rows. Pure but for `plan_avro`,
which asks the registry once, when the query begins: what it finds is kept, and goes with the
reader.

A record's fields are planned as the columns of a typed topic are (`typed/typed_read.py`); a value
of any other type is one column, `value`. Beside METADATA_COLUMNS there are

    _key                    binary; with key.format=avro the decoded key: a struct, or one value
    _error                  why a record could not be decoded; null where it was
    _raw_key, _raw_value    the bytes of the record, as they came
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from connector.avro_types import AvroColumn, avro_columns, whole_type
from connector.errors import ConnectorError, OptionError
from connector.options.avro_options import AvroSourceOptions, OnDamage, Part, ReadPart, SubjectNames
from connector.options.registry_options import RegistryOptions
from connector.options.source_options import SourceOptions
from connector.registries import NamedAvro, named_avro, registry_errors, registry_for
from connector.source.stream_offset import SchemaMark
from connector.source.typed.typed_read import TypedRead, plan_read
from connector.typed_columns import (
    ERROR,
    HEADERS,
    KEY,
    METADATA_COLUMNS,
    OFFSET,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    TIMESTAMP,
    TOPIC,
)
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.column_types import nullable_form
from storage_engine.core.typed.topic_schema import SchemaColumn, SchemaVersion, TopicSchema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from storage_engine.client.schema_registry import SchemaRegistry

LETTER_COLUMNS = (ERROR, RAW_KEY, RAW_VALUE, TOPIC, PARTITION, OFFSET, TIMESTAMP, HEADERS)
"""The columns that a dead letter is made of."""

_APPENDED = {
    OnDamage.FAILFAST: (),
    OnDamage.PERMISSIVE: (ERROR,),
    OnDamage.DEAD_LETTER: LETTER_COLUMNS,
}

_NO_TOPIC_ID = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroRead:
    """The schemas, columns and rows of a query. It is pickled into tasks."""

    rows: TypedRead
    """The columns, and the condition on rows."""

    value: NamedAvro
    key: NamedAvro | None
    registry: RegistryOptions
    mode: OnDamage

    @property
    def marks(self) -> dict[str, SchemaMark]:
        """The schemas, as the checkpoint holds them."""
        parts = {"value": self.value}
        if self.key is not None:
            parts["key"] = self.key
        return {
            part: SchemaMark(each.subject, each.version, each.schema_id)
            for part, each in parts.items()
        }

    @property
    def version(self) -> SchemaVersion:
        """The columns of the schema, by which the condition on rows is read."""
        return next(iter(self.rows.schemas.values())).schema.latest

    def spark_schema(self) -> "StructType":
        """The schema of the rows, all of it nullable."""
        return self.rows.spark_schema()


def plan_avro(
    options: SourceOptions, topics: Sequence[str], *, user_schema: "StructType | None"
) -> AvroRead:
    """Asks the registry for the schemas that `options` mean. OptionError where options, or the
    schema that the user gave, don't fit them; ConnectorError where the registry has none."""
    avro = options.avro
    assert avro is not None
    if options.include_headers is not None:
        raise OptionError(
            "BAD_OPTION",
            "'includeHeaders' does not go with value.format=avro: name _headers in 'columns'",
        )
    registry = registry_for(avro.registry)
    value = _found(registry, avro.value, topics, "value")
    key = None if avro.key is None else _found(registry, avro.key, topics, "key")
    return _planned(options, avro, topics, value, key, user_schema)


def check_same_schemas(before: Mapping[str, SchemaMark], now: Mapping[str, SchemaMark]) -> None:
    """OptionError where the query has read in other schemas so far. `before` is empty where it has
    not read yet, or not in Avro."""
    for part, mark in before.items():
        found = now.get(part)
        if found is not None and found != mark:
            raise OptionError(
                "SCHEMA_CHANGED",
                f"the query has read its {part}s in version {mark.version} of the subject "
                f"'{mark.subject}' (id {mark.id}), and would go on in version {found.version} of "
                f"'{found.subject}' (id {found.id}): set {part}.schema.version={mark.version} to "
                "keep its columns, or value.schema.evolution=restart to take the new ones",
            )


def _found(
    registry: "SchemaRegistry", part: ReadPart, topics: Sequence[str], name: Part
) -> NamedAvro:
    """The version of the one subject that all topics have."""
    subjects = (
        [part.subject]
        if part.subject is not None
        else [SubjectNames.TOPIC.subject(topic, name, None) for topic in topics]
    )
    first, *others = (_version(registry, subject, part, name) for subject in subjects)
    for other in others:
        if other.text != first.text:
            raise OptionError(
                "BAD_SCHEMA",
                f"the topics have different schemas, in the subjects '{first.subject}' and "
                f"'{other.subject}': name the one to read in with '{name}.schema.subject', or read "
                "them apart",
            )
    return first


def _version(registry: "SchemaRegistry", subject: str, part: ReadPart, name: Part) -> NamedAvro:
    from storage_engine.client.schema_registry_http import SchemaRegistryError

    with registry_errors():
        try:
            found = (
                registry.latest(subject)
                if part.version is None
                else registry.version(subject, part.version)
            )
        except SchemaRegistryError as error:
            if error.status != 404:
                raise
            what = "" if part.version is None else f" of version {part.version}"
            raise ConnectorError(
                "NO_SCHEMA",
                f"the registry has no schema{what} under the subject '{subject}': register it, or "
                f"name another with '{name}.schema.subject'",
            ) from None
    return named_avro(registry, found)


def _planned(
    options: SourceOptions,
    avro: AvroSourceOptions,
    topics: Sequence[str],
    value: NamedAvro,
    key: NamedAvro | None,
    user_schema: "StructType | None",
) -> AvroRead:
    key_type = types.BinaryColumn() if key is None else _key_type(key)
    others = {
        KEY: key_type,
        ERROR: types.StringColumn(),
        RAW_KEY: types.BinaryColumn(),
        RAW_VALUE: types.BinaryColumn(),
    }
    columns = _columns(value, others)
    version = SchemaVersion(version=1, columns=columns)
    known = KnownSchema(_NO_TOPIC_ID, TopicSchema(key=(), versions=(version,)))
    rows = plan_read(
        {topics[0]: known},
        chosen=options.chosen_columns,
        where=options.where,
        user_schema=user_schema,
        others=others,
        appended=_APPENDED[avro.mode],
    )
    return AvroRead(rows=rows, value=value, key=key, registry=avro.registry, mode=avro.mode)


def _columns(value: NamedAvro, others: Mapping[str, types.ColumnType]) -> tuple[SchemaColumn, ...]:
    """The schema's fields as columns. ConnectorError for names that can't stand side by side."""
    found: dict[str, AvroColumn] = {}
    with registry_errors():
        columns = avro_columns(value.text.parsed())
    for each in columns:
        folded = each.name.lower()
        if folded in (*METADATA_COLUMNS, *others):
            raise ConnectorError(
                "BAD_SCHEMA",
                f"the subject '{value.subject}' has the field '{each.name}', which is the name of "
                "a column with a record's origin: read it by key and value",
            )
        if folded in found:
            raise ConnectorError(
                "BAD_SCHEMA",
                f"the subject '{value.subject}' has the fields '{found[folded].name}' and "
                f"'{each.name}', which Spark takes for one: read it by key and value",
            )
        found[folded] = each
    return tuple(
        SchemaColumn(column_id=number, name=each.name, type=nullable_form(each.type), nullable=True)
        for number, each in enumerate(found.values(), 1)
    )


def _key_type(key: NamedAvro) -> types.ColumnType:
    with registry_errors():
        return nullable_form(whole_type(key.text.parsed()))
